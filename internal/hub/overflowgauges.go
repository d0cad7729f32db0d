package hub

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/comfyhub/comfyhub/internal/overflow"
)

// overflowGauges show the serverless endpoints.
type overflowGauges struct{ running, spent, aside, budget, closed *prometheus.Desc }

func newOverflowGauges() overflowGauges {
	endpoint := []string{"endpoint"}
	return overflowGauges{
		running: prometheus.NewDesc("comfyhub_overflow_running", "Runs that this hub has at a serverless endpoint.", endpoint, nil),
		spent:   prometheus.NewDesc("comfyhub_overflow_spent", "What the runs at an endpoint have cost today by UTC, in the money of its price.", endpoint, nil),
		aside:   prometheus.NewDesc("comfyhub_overflow_set_aside", "What the runs that go on at an endpoint may cost at most.", endpoint, nil),
		budget:  prometheus.NewDesc("comfyhub_overflow_budget", "What the runs at an endpoint may cost a day.", endpoint, nil),
		closed:  prometheus.NewDesc("comfyhub_overflow_closed", "1 while an endpoint takes no runs: it fails, or its budget is spent.", endpoint, nil),
	}
}

func (g overflowGauges) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.running, g.spent, g.aside, g.budget, g.closed} {
		out <- d
	}
}

func (g overflowGauges) collect(gauge func(d *prometheus.Desc, v float64, labels ...string), endpoints []overflow.Status) {
	for _, s := range endpoints {
		gauge(g.running, float64(s.Running), s.Endpoint)
		gauge(g.spent, s.Spent, s.Endpoint)
		gauge(g.aside, s.Aside, s.Endpoint)
		gauge(g.closed, oneIf(s.Closed != ""), s.Endpoint)
		if s.Budget > 0 {
			gauge(g.budget, s.Budget, s.Endpoint)
		}
	}
}
