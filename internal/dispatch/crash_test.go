package dispatch

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
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

// panics is a store of files that fails in the middle of a run.
type panics struct {
	noFiles
	at string
}

func (p panics) Push(ctx context.Context, tenant string, pins, graph []byte, instance string, to *comfyui.Client) ([]byte, error) {
	if p.at == "push" {
		panic("broken")
	}
	return p.noFiles.Push(ctx, tenant, pins, graph, instance, to)
}

func (p panics) Shown(string, string, []byte) {
	if p.at == "shown" {
		panic("broken")
	}
}

// A panic in a run ends the run's job with an error and nothing else: the hub
// goes on, and the instance is free for the next job.
func TestPanicEndsOneRun(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"push", "shown"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			files := panics{at: at}
			b := newDispatching(t, 1, func(_ *dispatching, c *Config) { c.Files = files })
			for range 2 {
				key := b.submit(picture)
				require.Contains(t, b.failure(key), "The hub failed")
				b.leaves(key)
			}
			require.Contains(t, b.logged(), "dispatch.(*run).", "the log has the stack")
			require.Equal(t, []string{"failed", "failed"}, b.ends())
		})
	}
}
