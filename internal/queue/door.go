package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// refusalLife is how long the answer of an instance that refused a job is kept for the hub whose
// client is waiting for it. That hub asks within a fraction of this time.
const refusalLife = time.Minute

// doorTime converts Submission.Door for the script.
func doorTime(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return milliseconds(d)
}

// Reject removes a job that its instance has refused while the client is still waiting for an
// answer: the job disappears as if it had never been accepted, and [Queue.Admit] returns the
// instance's answer to the hub that has the client. Errors: ErrAnswered if the client was already
// told otherwise, and ErrStale; in both cases nothing was changed. On the embedded server the end
// is on disk when Reject returns.
func (q *LeasedRuns) Reject(ctx context.Context, run job.Run, answer []byte) error {
	err := q.asHolder(ctx, run, func() error {
		return q.fenced(ctx, rejectScript, run.Key, run.Fence, q.codec.compress(answer), milliseconds(refusalLife))
	})
	if err == nil {
		q.copies.forget(run.Key)
	}
	return err
}

// Admit ends the wait for a refusal of a job that was enqueued with a Door. Either its instance has
// refused it, and Admit returns the instance's answer; or a refusal can no longer come, and the
// client may be told that the job is accepted. Admit may be called again, with the same result.
// Errors: ErrNotFound.
func (q *LeasedRuns) Admit(ctx context.Context, key string) (answer []byte, refused bool, err error) {
	code, values, err := q.run(ctx, admitScript, key)
	if err != nil {
		return nil, false, err
	}
	if code != "refused" {
		return nil, false, refusal(code)
	}
	if len(values) == 0 {
		return nil, false, fmt.Errorf("%w: a refusal without an answer", ErrCorrupt)
	}
	answer, err = q.codec.expand([]byte(values[0]))
	if err != nil {
		return nil, false, err
	}
	return answer, true, nil
}
