package dispatch

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// A job whose body cannot be read and whose cancel was asked for ends as
// cancelled. It has no files and no graph by then.
func TestCancelOfAJobWithoutABody(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 0)
	key := b.submit(picture)
	b.deleteBody(key)
	claimed, err := b.queue.Claim(t.Context(), queue.ClaimRequest{Key: key, Instance: "gpu", Hub: b.Hub, Upstream: uuid.NewString(), SID: "sid"})
	require.NoError(t, err)
	_, err = b.queue.Cancel(t.Context(), key)
	require.NoError(t, err)
	r := newRun(b.Dispatcher, nil, claimed)
	b.launch(r, r.carry)
	b.reaches(key, job.Cancelled)
}

// A panic in a run ends the run's job with an error and nothing else: the hub
// goes on, and the instance is free for the next job.
func TestPanicEndsOneRun(t *testing.T) {
	t.Parallel()
	for at, broken := range map[string]func(*Config){
		"before the prompt is posted": func(c *Config) { c.Files = files.NewTransfer(nil, nil, nil, nil) },
		"while it executes":           func(c *Config) { c.Shown = func(string, string, []byte) { panic("broken") } },
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			b := newDispatching(t, 1, func(_ *dispatching, c *Config) { broken(c) })
			for range 2 {
				key := b.submit(picture, func(s *queue.Submission) { s.Body.Inputs = []byte(`{"v": 1, "held": ["a"]}`) })
				require.Contains(t, b.failure(key), "The hub failed")
				b.leaves(key)
			}
			require.Contains(t, b.logged(), "dispatch.(*run).", "the log has the stack")
			require.Equal(t, []string{"failed", "failed"}, b.ends())
		})
	}
}
