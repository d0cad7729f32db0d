package waits

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/testing/figure"
	"github.com/comfyhub/comfyhub/system"
)

// Six checkpoints that take five seconds to load, and room for one of them in a GPU.
const (
	modelCount   = 6
	modelLoad    = 5 * time.Second
	affinityLoad = 0.7
)

// modelFile is the name of a checkpoint.
func modelFile(number int) string { return "model" + strconv.Itoa(number) + ".safetensors" }

// affinity compares how often instances load models, behind the hub and behind a queue
// that knows nothing of them.
func affinity(t *testing.T, o options) figure.Figure {
	const instances = 30
	list := arrivals(o.seed, instances, o.some(1500), affinityLoad)
	random := rand.New(rand.NewPCG(o.seed, 4)) // #nosec G404 -- repeatable, not secret
	for n := range list {
		list[n].model = 1 + random.IntN(modelCount)
	}
	c := system.Config{Comfy: sim.Config{LoadTime: modelLoad, VRAM: 8 << 30, Models: map[string][]string{"checkpoints": nil}}}
	for n := range modelCount {
		c.Comfy.Models["checkpoints"] = append(c.Comfy.Models["checkpoints"], modelFile(n+1))
	}
	var all []played
	var switched int
	inWorld(t, instances, c, func(r *rig) {
		all = r.play(list, r.hub)
		switched = r.switches(all)
	})
	blind, blindWait := blindly(list, instances)
	perPrompt := func(n int) float64 { return float64(n) / float64(len(list)) }
	return figure.Figure{
		Name: "affinity", Value: perPrompt(switched) / perPrompt(blind), Unit: "ratio", Goal: 0.5, Lower: true,
		Beside: fmt.Sprintf("%.2f switches per prompt with the hub, %.2f without; mean wait %.2f s and %.2f s",
			perPrompt(switched), perPrompt(blind), mean(all).Seconds(), blindWait.Seconds()),
	}
}

// switches counts the prompts before which their instance had another model.
func (r *rig) switches(all []played) (count int) {
	slices.SortFunc(all, func(a, b played) int { return a.began.Compare(b.began) })
	loaded := map[string]int{}
	for _, p := range all {
		var job struct{ Instance string }
		_, err := r.call(http.MethodGet, r.hub(0)+"/hub/jobs/"+p.id, "", &job)
		require.NoError(r.t, err)
		if loaded[job.Instance] != p.model {
			count++
		}
		loaded[job.Instance] = p.model
	}
	return count
}

// blindly is [ideal] with models: it returns how often they are loaded, and the mean wait.
func blindly(list []arrival, instances int) (switches int, mean time.Duration) {
	free := make(moments, instances)
	loaded := map[time.Duration][]int{0: make([]int, instances)} // of those free at a moment
	var waited time.Duration
	for _, a := range list {
		at := free[0]
		start := max(a.at, at)
		waited += start - a.at
		has := loaded[at][0]
		if loaded[at] = loaded[at][1:]; len(loaded[at]) == 0 {
			delete(loaded, at)
		}
		end := start + a.takes
		if has != a.model {
			switches++
			end += modelLoad
		}
		loaded[end] = append(loaded[end], a.model)
		free[0] = end
		heap.Fix(&free, 0)
	}
	return switches, waited / time.Duration(len(list))
}
