package submit

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// doorLife is how long an instance's refusal may still become the answer to a client. It matters
// only if this hub dies while the client waits: the hub closes the door when it answers.
const doorLife = 10 * time.Second

// Door is a *[run.Door].
type Door interface {
	Wait(ctx context.Context, patience time.Duration) (nodeErrors []byte)
	Close()
}

// ask waits for an instance to take or refuse a job that is queued and at the door. The instance's
// refusal is a *[catalog.Answer]; the nodeErrors are those of a prompt of which it runs a part. door is nil
// for a job that an earlier request has posted.
func (s *Submitter) ask(ctx context.Context, j job.Job, door Door) (nodeErrors []byte, err error) {
	if door != nil {
		nodeErrors = door.Wait(ctx, s.Patience())
	}
	// Even for a client that has left: the job is refused or accepted, and nothing stays open.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doorLife)
	defer cancel()
	answer, refused, err := s.Queue.Admit(ctx, j.Key)
	if refused && err == nil {
		err = catalog.AtInstance(answer)
	}
	return nodeErrors, err
}

// maxNodeErrors bounds the node errors of an instance that are passed on.
const maxNodeErrors = 1 << 20

// nodeErrorsOf returns an instance's node errors or, if it has none, those that the hub has found.
func nodeErrorsOf(raw []byte, own *pyjson.Object) *pyjson.Object {
	v, err := pyjson.Parse(raw)
	if o, ok := v.(*pyjson.Object); err == nil && ok && o.Len() > 0 && len(raw) <= maxNodeErrors {
		return o
	}
	return own
}
