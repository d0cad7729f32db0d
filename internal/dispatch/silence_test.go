package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// How long a run may be silent depends on how long such runs took, once that is known well.
func TestHangAfter(t *testing.T) {
	type row struct {
		warm, cold     []time.Duration // the runs so far
		loads, adopted bool            // this run
		want           time.Duration
	}
	inBubbles(t, map[string]row{
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
		b := newDispatching(t, 1, func(b *dispatching, _ *Config) { b.settings.StallTimeout = 5 * time.Minute })
		shape := shapeOf(t, b, endless)
		s, ok := schedule.DecodeStructure(shape)
		require.True(t, ok)
		pair := schedule.Pair{Structure: s.Key, Kind: s.Kind, GPU: b.gpuOf(b.instances[0].name)}
		for _, ran := range c.warm {
			b.durations.add(pair, schedule.Sample{Work: s.Work, Ran: ran})
		}
		for _, ran := range c.cold {
			b.durations.add(pair, schedule.Sample{Work: s.Work, Ran: ran, Cold: true})
		}
		b.connects(1)
		r := newRun(b.Dispatcher, b.connection(b.instances[0].name), job.Job{Key: "k", Shape: shape})
		if r.cold = c.loads; !c.adopted {
			r.mark = 1
		}
		require.Equal(t, c.want, r.hangAfter())
	})
}

func times(n int, each time.Duration) (list []time.Duration) {
	for range n {
		list = append(list, each)
	}
	return list
}
