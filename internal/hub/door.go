package hub

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// doorLife is how long an instance's refusal may still become the answer to a
// client. It matters only if this hub dies while the client waits: the hub
// closes the door when it answers.
const doorLife = 10 * time.Second

// mayAsk reports whether the client should wait for an instance's own word: one
// is idle that could run the job.
func (h *Hub) mayAsk(s queue.Submission) bool {
	needs, err := catalog.DecodeRequirements(s.Body.Requires)
	return err == nil && h.dispatch.HasIdle(needs)
}

// ask waits for an instance to take or refuse a job that is queued and at the
// door, and closes the door. An answer with refused is the instance's refusal;
// one without is the node errors of a prompt of which the instance runs a part.
// door is nil for a job that an earlier request has posted.
func (h *Hub) ask(ctx context.Context, j job.Job, door *dispatch.Door) (answer []byte, refused bool, err error) {
	var nodeErrors []byte
	if door != nil {
		nodeErrors = door.Wait(ctx, h.Settings().AskPatience)
	}
	// Also for a client that has left: the job is refused or accepted, and
	// nothing stays open.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doorLife)
	defer cancel()
	answer, refused, err = h.queue.Admit(ctx, j.Key)
	if refused || err != nil {
		return answer, refused, err
	}
	return nodeErrors, false, nil
}

// nodeErrorsOf are an instance's node errors; where it has none, those that the
// hub has found.
func nodeErrorsOf(raw []byte, own *pyjson.Object) *pyjson.Object {
	v, err := pyjson.Parse(raw)
	if o, ok := v.(*pyjson.Object); err == nil && ok && o.Len() > 0 && len(raw) <= maxAnswer {
		return o
	}
	return own
}
