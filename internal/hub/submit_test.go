package hub

import (
	"errors"
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

// The hub takes prompts from any dialect, so this test makes no request.
func TestSubmitWithoutARequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		p := submissionOf(t, picture(7))
		p.ID, p.Priority = "same", 1000
		for range 2 { // sent twice it is one job
			var answers []Accepted
			b.hub.Submitter().Submit(t.Context(), p, func(a Accepted, err error) {
				require.NoError(t, err)
				answers = append(answers, a)
			})
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
	})
}

func TestSubmitRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) { b.settings.MaxQueue = 1 })
		submit := func(graph string) (accepted Accepted, err error) {
			answers := 0
			b.hub.Submitter().Submit(t.Context(), submissionOf(t, graph), func(a Accepted, e error) { accepted, err, answers = a, e, answers+1 })
			require.Equal(t, 1, answers)
			return accepted, err
		}
		var answer *catalog.Answer
		_, err := submit(`{"1": {"inputs": {}}}`)
		require.ErrorAs(t, err, &answer)
		require.Equal(t, 400, answer.Status)

		accepted, err := submit(picture(1))
		require.NoError(t, err)
		require.Zero(t, accepted.Position)
		require.NotEmpty(t, accepted.ID, "the hub makes an id")
		_, err = submit(picture(2))
		require.ErrorIs(t, err, ErrQueueFull)
	})
}

// loggedDoor records when a door is closed.
type loggedDoor struct {
	door
	log *[]string
}

func (d loggedDoor) Close() {
	*d.log = append(*d.log, "closed")
	d.door.Close()
}

// Messages of a run may follow once the door of its job is closed. A client that
// is told of an error must have that answer by then, just like a client that is
// told an id: a job may be queued even though its client is told of an error.
func TestDoorStaysOpenUntilTheAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, patient)
		var log []string
		submitter := *b.hub.Submitter()
		submitter.door = func(key string) door { return loggedDoor{b.hub.dispatch.Door(key), &log} }
		for _, test := range []struct {
			graph   string
			refused bool
		}{{checked(-1, false), true}, {checked(1, false), false}} { // refused first, so that the instance is idle
			log = nil
			submitter.Submit(t.Context(), submissionOf(t, test.graph), func(_ Accepted, err error) {
				log = append(log, "answered")
				var refusal *Refusal
				require.Equal(t, test.refused, errors.As(err, &refusal), "%v", err)
			})
			require.Equal(t, []string{"answered", "closed"}, log)
		}
	})
}
