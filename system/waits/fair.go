package waits

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/testing/figure"
	"github.com/comfyhub/comfyhub/system"
)

const (
	// early is how many prompts one tenant posts before the other one comes.
	early = 1000
	// fairInstances are for both; half of them are what the other one may expect.
	fairInstances = 8
	fairCount     = 300
)

// fair compares a tenant's mean slowdown, the time from POST to the end over the time that
// the prompt runs, beside another tenant that has posted a thousand prompts first, and alone
// on half of the instances.
func fair(t *testing.T, o options) figure.Figure {
	list := pictures(o.seed, fairInstances/2, o.some(fairCount), load) // of its videos it would wait for itself
	others := o.some(early)
	alone := slowdown(beside(t, list, fairInstances/2, 0, picture, nil))
	crowded := slowdown(beside(t, list, fairInstances, others, picture, nil))
	return figure.Figure{
		Name: "fair", Value: crowded / alone, Unit: "ratio", Goal: 1.2, Lower: true,
		Beside: fmt.Sprintf("mean slowdown %.2f beside %d prompts of another tenant, %.2f alone on %d instances", crowded, others, alone, fairInstances/2),
	}
}

// slowdown is how many times as long as they run prompts take on average.
func slowdown(all []played) float64 {
	var sum float64
	for _, p := range all {
		sum += (p.waited + p.takes).Seconds() / p.takes.Seconds()
	}
	return sum / float64(len(all))
}

// beside plays a schedule for the tenant late while prompts of the tenant early wait.
func beside(t *testing.T, list []arrival, instances, others int, takes time.Duration, settings func(*config.Settings)) (all []played) {
	inWorld(t, instances, system.Config{Settings: settings}, func(r *rig) {
		r.tenant = "late"
		other := *r
		other.tenant = "early"
		for n := range others {
			a := arrival{takes: takes}
			require.NoError(t, other.post(&played{}, r.hub(0), a.body("early", len(list)+n)))
		}
		all = r.play(list, r.hub)
		other.cancel()
	})
	return all
}

// cancel ends all that the tenant has, so that nobody need wait for it.
func (r *rig) cancel() {
	_, err := r.call(http.MethodPost, r.hub(0)+"/queue", `{"clear": true}`, nil)
	require.NoError(r.t, err)
}

const (
	// A person posts prompts of a picture's length, one each thinkTime; the batch of
	// another tenant keeps all instances busy meanwhile.
	personPrompts = 60
	thinkTime     = 20 * time.Second
	batchTakes    = 60 * time.Second
	batchPrompts  = 240
)

// interactive compares the p95 wait of a person's prompts beside a batch that fills the
// fleet with how long they run, with `preempt bulk` and without.
func interactive(t *testing.T, o options) figure.Figure {
	list := make([]arrival, o.some(personPrompts))
	for n := range list {
		list[n] = arrival{at: time.Duration(n) * thinkTime, takes: picture}
	}
	waits := map[time.Duration]time.Duration{}
	for _, after := range []time.Duration{0, time.Second} {
		waits[after] = p95(beside(t, list, fairInstances, batchPrompts, batchTakes, func(s *config.Settings) {
			s.PreemptBulk = after
			s.TenantLimitsOf = map[string]config.TenantLimits{"late": {Band: job.Interactive}, "early": {Band: job.Bulk}}
		}))
	}
	return figure.Figure{
		Name: "interactive", Value: waits[time.Second].Seconds() / picture.Seconds(), Unit: "ratio", Goal: 1.5, Lower: true,
		Beside: fmt.Sprintf("p95 of the wait %.1f s with preempt bulk, %.1f s without, for prompts of %.0f s beside a batch of prompts of %.0f s",
			waits[time.Second].Seconds(), waits[0].Seconds(), picture.Seconds(), batchTakes.Seconds()),
	}
}

// p95 is the wait that one prompt in twenty exceeds.
func p95(all []played) time.Duration {
	waits := make([]time.Duration, len(all))
	for n, p := range all {
		waits[n] = p.waited
	}
	slices.Sort(waits)
	return waits[len(waits)*95/100]
}
