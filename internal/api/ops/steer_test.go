package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/submit"
)

func TestSteeringReadsWhatItKnows(t *testing.T) {
	t.Parallel()
	priority, yes := -100, true
	for body, want := range map[string]submit.Steering{
		`{"priority": -100}`:    {Priority: &priority},
		`{"position": "front"}`: {Position: submit.Front},
		`{"paused": true, "position": "end", "priority": -100}`: {Priority: &priority, Position: submit.End, Paused: &yes},
	} {
		got, err := steering([]byte(body))
		require.NoError(t, err, body)
		require.Equal(t, want, got, body)
	}
	for _, body := range []string{
		``, `{}`, `[]`, `null`, `{"priority": 101}`, `{"priority": -101}`, `{"priority": 1.5}`, `{"priority": "1"}`, `{"priority": null}`,
		`{"position": ""}`, `{"position": 1}`, `{"position": null}`, `{"paused": null}`, `{"paused": 1}`, `{"pause": true}`, `{"Paused": true}`,
		`{"paused": true, "front": true}`,
	} {
		_, err := steering([]byte(body))
		require.ErrorIs(t, err, errSteering, body)
	}
}

func FuzzSteering(f *testing.F) {
	for _, seed := range []string{`{"priority": 5}`, `{"position": "end", "paused": false}`, `{"paused": null}`, `[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := steering(body)
		if err != nil {
			require.Zero(t, s)
			return
		}
		require.NotZero(t, s)
		if s.Priority != nil {
			require.LessOrEqual(t, *s.Priority, job.MaxPriority)
			require.GreaterOrEqual(t, *s.Priority, job.MinPriority)
		}
		require.Contains(t, []any{submit.Front, submit.End, submit.Steering{}.Position}, s.Position)
	})
}
