package waits

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/testing/figure"
	"github.com/comfyhub/comfyhub/system"
)

// headOfLine compares the mean waits behind a balancer and behind the hub.
func headOfLine(instances, count int, goal float64) measure {
	return func(t *testing.T, o options) figure.Figure {
		list := arrivals(o.seed, instances, o.some(count), load)
		var robin, random, ours time.Duration
		inWorld(t, instances, system.Config{}, func(r *rig) {
			robin = mean(r.play(list, func(n int) string { return r.w.Comfys[n%instances].URL() }))
			// Each POST /prompt is answered at once: least_conn sees no difference and draws.
			draw := rand.New(rand.NewPCG(o.seed, 9)) // #nosec G404 -- repeatable, not secret
			random = mean(r.play(list, func(int) string { return r.w.Comfys[draw.IntN(instances)].URL() }))
		})
		inWorld(t, instances, system.Config{}, func(r *rig) { ours = mean(r.play(list, r.hub)) })
		return figure.Figure{
			Name: fmt.Sprintf("hol%d", instances), Value: robin.Seconds() / ours.Seconds(), Unit: "ratio", Goal: goal,
			Beside: fmt.Sprintf("mean wait %.1f s with round robin, %.1f s with least_conn, %.2f s with the hub, %.2f s with an ideal FIFO",
				robin.Seconds(), random.Seconds(), ours.Seconds(), ideal(list, instances).Seconds()),
		}
	}
}

// firstIn compares the mean wait behind a hub that keeps the order with that of an ideal queue.
func firstIn(instances, count int) measure {
	return func(t *testing.T, o options) figure.Figure {
		list := arrivals(o.seed, instances, o.some(count), load)
		var ours time.Duration
		c := system.Config{Settings: func(s *config.Settings) { s.FIFO = true }}
		inWorld(t, instances, c, func(r *rig) { ours = mean(r.play(list, r.hub)) })
		best := ideal(list, instances)
		return figure.Figure{
			Name: fmt.Sprintf("fifo%d", instances), Value: ours.Seconds() / best.Seconds(), Unit: "ratio", Goal: 1.05, Lower: true,
			Beside: fmt.Sprintf("mean wait %.2f s with the hub, %.2f s with an ideal FIFO", ours.Seconds(), best.Seconds()),
		}
	}
}
