package run

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// A client is shown why its job was not taken, without being told where Redis is.
func TestReasonsDoNotTellWhereRedisIs(t *testing.T) {
	t.Parallel()
	db := redistest.Open(t, "redis://127.0.0.1:1?max_retries=-1")
	err := db.Ping(t.Context())
	require.ErrorIs(t, err, queue.ErrUnavailable)
	require.ErrorContains(t, err, "127.0.0.1:1")
	r := testRun(Around{}, job.Job{Key: "key"})
	for name, res := range map[string]result{
		"body": preparation{r}.unreadable(t.Context(), err), "inputs": posting{r}.notTaken(fmt.Errorf("files: %w", err)),
	} {
		require.Equal(t, result{kind: excused, cause: Redis, reason: "the hub's queue cannot be reached", anywhere: true}, res, name)
	}
}

// An instance that may have them gets the API keys of a prompt beside the rest of extra_data;
// others get only the rest.
func TestExtraForInstances(t *testing.T) {
	t.Parallel()
	body := job.Body{Extra: []byte(`{"note": "n"}`), Secrets: []byte(`{"api_key_comfy_org": "k"}`)}
	for may, want := range map[bool]string{
		true:  `{"note": "n", "api_key_comfy_org": "k", "comfyhub": {"fence":7,"job":"j"}}`,
		false: `{"note": "n", "comfyhub": {"fence":7,"job":"j"}}`,
	} {
		require.Equal(t, want, string(extraFor(body, job.Job{Key: "j", Fence: 7}, may, false)))
	}
}

// A job whose body cannot be read and that was about to be cancelled ends as cancelled. It has no
// files and no graph by then.
func TestCancelOfAJobWithoutABody(t *testing.T) {
	t.Parallel()
	db := redistest.Embedded(t)
	q := must(queue.New(db, queue.Options{}))
	accepted := must(q.Enqueue(t.Context(), queue.Submission{
		Key: uuid.NewString(), ID: "a", Requester: job.Requester{Tenant: "tenant"}, Class: "class", BodyHash: "hash",
		Body: job.Body{Prompt: []byte("{}"), Extra: []byte("{}"), Outputs: []string{"1"}},
	}))
	key := accepted.Job.Key
	require.NoError(t, db.Client().Del(t.Context(), db.Key("q", "body", key)).Err())
	claimed := must(q.Claim(t.Context(), queue.ClaimRequest{Key: key, Instance: "gpu", Hub: "hub/1", Upstream: uuid.NewString(), SID: "sid"}))
	must(q.Cancel(t.Context(), key))
	streams := stream.New(stream.Options{SpillDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	r := testRun(Around{
		Queue: q, Streams: streams, Notices: NewNotices(q, streams), Observe: Unobserved(), Signal: &woken{}, Work: &panics.Group{},
		Traces: func() *traces.Tracer { return nil },
	}, claimed)
	r.perform(t.Context(), preparation{r}.execute)
	require.Equal(t, job.Cancelled, must(q.Get(t.Context(), key)).State)
}
