package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/learned"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// How long a run may be silent depends on how long such runs took, once enough is known about them.
func TestHangAfter(t *testing.T) {
	type row struct {
		warm, cold     []time.Duration // the runs so far
		loads, adopted bool            // this run
		want           time.Duration
	}
	beside.Cases(t, map[string]row{
		"nothing is known":           {want: 30 * time.Minute},
		"short runs":                 {warm: times(5, 2*time.Second), want: 5 * time.Minute},
		"one of them longer":         {warm: append(times(4, 2*time.Second), 30*time.Second), want: 10 * time.Minute},
		"too few":                    {warm: times(4, 2*time.Second), want: 30 * time.Minute},
		"long runs":                  {warm: times(5, time.Hour), want: 3 * time.Hour},
		"one long run":               {warm: times(1, time.Hour), want: 3 * time.Hour},
		"loading was never measured": {warm: times(9, 2*time.Second), loads: true, want: 30 * time.Minute},
		"loading was measured":       {warm: times(1, 2*time.Second), cold: times(5, 20*time.Second), loads: true, want: 400 * time.Second},
		"it may have to load":        {warm: times(9, 2*time.Second), adopted: true, want: 30 * time.Minute},
	}, func(t *testing.T, c row) {
		structure := schedule.Structure{Key: "key", Kind: "kind", Work: 1}
		reports := instance.New(instance.Config{Fleet: fleet.NewRegistry()}).Reports
		known := learned.New(nil, reports, nil)
		pair := schedule.Pair{Structure: structure.Key, Kind: structure.Kind, GPU: reports.Gpu("gpu")}
		for _, ran := range c.warm {
			known.Add(pair, schedule.Sample{Work: structure.Work, Ran: ran})
		}
		for _, ran := range c.cold {
			known.Add(pair, schedule.Sample{Work: structure.Work, Ran: ran, Cold: true})
		}
		r := testRun(Around{
			Durations: known, Reports: reports, Settings: func() Settings { return Settings{StallTimeout: 5 * time.Minute} },
		}, job.Job{Key: "k", Shape: structure.Encode()})
		r.conn = linkTo("gpu", fleet.NewRegistry())
		if r.cold = c.loads; !c.adopted {
			r.mark = 1
		}
		require.Equal(t, c.want, looking{r}.hangAfter())
	})
}

func times(n int, each time.Duration) (list []time.Duration) {
	for range n {
		list = append(list, each)
	}
	return list
}
