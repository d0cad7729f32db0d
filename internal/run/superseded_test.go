package run

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// An instance that comes back with a part goes on only if somebody may still want it: the record of a
// part goes with its job.
func TestPartOfAnEndedJobIsSuperseded(t *testing.T) {
	t.Parallel()
	q := must(queue.New(redistest.Embedded(t), queue.Options{Lease: time.Minute}))
	ctx := t.Context()
	claim := func(key string) job.Run {
		return must(q.Claim(ctx, queue.ClaimRequest{Key: key, Instance: uuid.NewString(), Hub: "hub/1", Upstream: uuid.NewString()})).Run
	}
	part := queue.Part{Key: uuid.NewString(), Body: job.Body{Prompt: []byte("{}"), Extra: []byte("{}"), Requires: []byte("requires")}}
	whole := queue.Submission{
		Key: uuid.NewString(), ID: "a", Requester: job.Requester{Tenant: "tenant", Caller: "caller"}, Class: "class", BodyHash: "hash",
		Body: job.Body{Prompt: []byte("{}"), Extra: []byte("{}"), Outputs: []string{"9"}, Requires: []byte("requires")},
	}
	must(q.Enqueue(ctx, whole))
	its := claim(whole.Key)
	require.NoError(t, q.Split(ctx, its, "part", []queue.Part{part}))
	claimed := claim(part.Key)
	s := NewSuperseded(q, nil)
	stale := func(key string) bool {
		return must(s.has(ctx, linkTo("elsewhere", nil), comfyui.QueueItem{Mark: comfyui.Mark{Job: key}}))
	}
	require.True(t, stale(part.Key), "another instance has it")
	must(q.Requeue(ctx, claimed, queue.RequeueOptions{}))
	require.True(t, stale(part.Key), "it waits")
	require.NoError(t, q.Finish(ctx, its, queue.Outcome{State: job.Cancelled, Entry: []byte("{}")}))
	require.True(t, stale(part.Key), "nobody wants it")
	require.False(t, stale(uuid.NewString()), "it is somebody else's")
}
