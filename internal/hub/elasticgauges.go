package hub

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/comfyhub/comfyhub/internal/scale"
)

// elasticGauges show the classes of machines that come and go by need.
type elasticGauges struct{ wanted, starting, spent, budget, failing *prometheus.Desc }

func newElasticGauges() elasticGauges {
	class := []string{"class"}
	return elasticGauges{
		wanted:   prometheus.NewDesc("comfyhub_instances_wanted", "How many instances of a class there are to be, those that are leaving included.", class, nil),
		starting: prometheus.NewDesc("comfyhub_instances_starting", "Instances that were asked for and have not joined yet.", class, nil),
		spent:    prometheus.NewDesc("comfyhub_scale_spent", "What the machines of a class have cost today by UTC, in the money of their price.", class, nil),
		budget:   prometheus.NewDesc("comfyhub_scale_budget", "What the machines of a class may cost a day.", class, nil),
		failing:  prometheus.NewDesc("comfyhub_scale_failing", "1 while the provider of a class fails, or the machines that it has started do not join.", class, nil),
	}
}

func (g elasticGauges) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.wanted, g.starting, g.spent, g.budget, g.failing} {
		out <- d
	}
}

func (g elasticGauges) collect(gauge func(d *prometheus.Desc, v float64, labels ...string), classes []scale.Status) {
	for _, s := range classes {
		gauge(g.wanted, float64(s.Wanted), s.Class)
		gauge(g.starting, float64(s.Starting), s.Class)
		gauge(g.failing, oneIf(s.Error != "" || s.FailedStarts > 0), s.Class)
		if s.Price > 0 {
			gauge(g.spent, s.Spent, s.Class)
		}
		if s.Budget > 0 {
			gauge(g.budget, s.Budget, s.Class)
		}
	}
}
