package hub

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
)

// submissionOf is what a dialect makes of a graph.
func submissionOf(t *testing.T, graph string) Submission {
	t.Helper()
	request, err := catalog.ParseRequest([]byte(`{"prompt": ` + graph + `}`))
	require.NoError(t, err)
	return Submission{Requester: job.Requester{Tenant: job.DefaultTenant, Caller: "from:test"}, Graph: request.Graph, Extra: request.Extra}
}

// The hub takes prompts from any dialect: there is no request here.
func TestSubmitWithoutARequest(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	p := submissionOf(t, picture(7))
	p.ID, p.Priority = "same", 1000
	for range 2 { // sent twice it is one job
		var answers []Accepted
		require.NoError(t, b.hub.Submitter().Submit(t.Context(), p, func(a Accepted) { answers = append(answers, a) }))
		require.Len(t, answers, 1)
		require.Equal(t, "same", answers[0].ID)
		require.Zero(t, answers[0].NodeErrors.Len())
		require.Equal(t, "success", b.finished("same").Status.Text)
	}
	require.Equal(t, 1, started(b))
	j, err := b.hub.jobs.Find(t.Context(), job.DefaultTenant, "same")
	require.NoError(t, err)
	require.Equal(t, job.MaxPriority, j.Priority)
	require.Equal(t, "from:test", j.Caller)
}

func TestSubmitRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0, func(b *bench) { b.settings.MaxQueue = 1 })
	never := func(Accepted) { t.Error("a refused prompt is not answered as accepted") }
	var answer *catalog.Answer
	err := b.hub.Submitter().Submit(t.Context(), submissionOf(t, `{"1": {"inputs": {}}}`), never)
	require.ErrorAs(t, err, &answer)
	require.Equal(t, 400, answer.Status)

	accepted := 0
	require.NoError(t, b.hub.Submitter().Submit(t.Context(), submissionOf(t, picture(1)), func(a Accepted) {
		accepted++
		require.Zero(t, a.Position)
		require.NotEmpty(t, a.ID, "the hub makes an id")
	}))
	require.Equal(t, 1, accepted)
	require.ErrorIs(t, b.hub.Submitter().Submit(t.Context(), submissionOf(t, picture(2)), never), ErrQueueFull)
}
