package waits

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
	"github.com/comfyhub/comfyhub/system"
)

const (
	// A sixth of the prompts run first, so that the hub learns; of the others, those count that
	// wait for longer than etaWaits.
	etaCount    = 1200
	etaLearning = 6
	etaWaits    = 5 * time.Second
)

// eta compares the wait that the hub promises with the answer to a POST with the real one.
func eta(t *testing.T, o options) figure.Figure {
	const instances = 8
	list := arrivals(o.seed, instances, o.some(etaCount), load)
	var all []played
	inWorld(t, instances, system.Config{}, func(r *rig) { all = r.play(list, r.hub) })
	errors, silent := misses(all[len(all)/etaLearning:])
	require.NotEmpty(t, errors, "no prompt has waited for %v with a promise", etaWaits)
	return figure.Figure{
		Name: "eta", Value: errors[len(errors)/2], Unit: "ratio", Goal: 0.25, Lower: true,
		Beside: fmt.Sprintf("for %d prompts; a tenth misses by more than %.2f; %d more had no promise", len(errors), errors[len(errors)*9/10], silent),
	}
}

// misses returns by which share of the real wait promises differ from it, sorted, for prompts
// that have waited long enough, and how many of these had no promise. A promise says in how
// long the prompt will be finished.
func misses(all []played) (shares []float64, silent int) {
	for _, p := range all {
		switch {
		case p.waited <= etaWaits:
		case p.promised < 0:
			silent++
		default:
			wait := p.promised - p.takes
			shares = append(shares, max(wait-p.waited, p.waited-wait).Seconds()/p.waited.Seconds())
		}
	}
	slices.Sort(shares)
	return shares, silent
}
