package dispatch

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// choosy is a Redis that refuses one final state, for a reason that nobody knows.
type choosy struct {
	goredis.Hook
	state string
	tries atomic.Int32
}

type oddReply string

func (o oddReply) Error() string { return string(o) }
func (o oddReply) RedisError()   {}

func (c *choosy) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (c *choosy) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		// The final state is followed by how long the run took and its entry.
		if args := cmd.Args(); slices.Contains(args, any(c.state)) {
			c.tries.Add(1)
			cmd.SetErr(oddReply("ERR odd"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (c *choosy) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// If the end of a job cannot be written, for a reason nobody has thought of, it is tried a few
// times. Then the job ends with an error instead of running again and again.
func TestEndThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	c := &choosy{state: string(job.Done)}
	b := newDispatchingOn(t, redistest.Start(t).URL(), c, 1)
	key := b.submit(picture)
	require.Contains(t, b.failure(key), "The hub could not store the end of this prompt.")
	require.EqualValues(t, 1+maxUnknown, c.tries.Load())
	require.Equal(t, 1, b.Job(key).Attempts)
	b.leaves(key)
	require.Equal(t, []string{"failed"}, b.ends())
}
