package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Submission is a prompt that has passed all checks.
type Submission struct {
	// Key is the job's key, a new lowercase UUID. Sending a Submission twice with the same key
	// creates one job.
	Key string
	// ID is the client's prompt_id; never empty.
	ID string
	job.Requester
	// Place is the job's, see [job.Job].
	Place string
	// Label is the job's, see [job.Job].
	Label string
	// Class is the signature of Body.Requires.
	Class string
	// Shape is the job's, see [job.Job].
	Shape string
	// Priority is from -100 to 100; values outside are clamped.
	Priority int
	// Band is the job's; empty means normal. With the order fifo, all are normal.
	Band job.Band
	// Number is the number sent by the client, a float as in ComfyUI. nil takes the next one of the
	// tenant's counter, or its negative with Front.
	Number *float64
	Front  bool
	// BodyHash tells a repeated prompt from a different one with the same id.
	BodyHash string
	Body     job.Body
	// Door is how long an instance's refusal may still become the answer to the client, see
	// [Queue.Admit]. With zero, the job is accepted at once.
	Door time.Duration
	// Callback is called as the job goes on; nil for none.
	Callback *Callback
}

// Accepted is the answer to a Submission.
type Accepted struct {
	Job job.Job
	// Existing means that the job had been accepted before. Nothing was changed,
	// and the job may have ended.
	Existing bool
	// Position is the number of jobs that were ahead of an accepted one, see [Queue.Positions]; -1
	// with Existing.
	Position int
}

// Enqueue accepts a job, or finds the one that was accepted before with the same key, or with the
// same id and BodyHash. On the embedded server the job is on disk when Enqueue returns. Errors:
// ErrFull, ErrTenantFull, ErrTenantSpent, ErrTenantRate, ErrCallbacksFull, ErrTenantCallbacksFull,
// ErrUnavailable.
func (q *WaitingJobs) Enqueue(ctx context.Context, s Submission) (Accepted, error) {
	if s.Key == "" || s.ID == "" || s.Tenant == "" {
		return Accepted{}, errors.New("queue: a submission needs a key, an id and a tenant")
	}
	priority := min(max(s.Priority, job.MinPriority), job.MaxPriority)
	var number, prefix, front string
	if s.Number != nil {
		number, prefix = string(pyjson.Finite(pyjson.Float(*s.Number))), job.RankPrefix(priority, *s.Number)
	} else if s.Front {
		front = "1"
	}
	var sealed []byte
	if len(s.Body.Secrets) > 0 {
		var err error
		if sealed, err = q.seal(s.Key, s.Body.Secrets); err != nil {
			return Accepted{}, err
		}
	}
	limit := q.limit.Load()
	ownJobs, ownBytes := limit.TenantQueue(s.Tenant)
	_, daily := limit.TenantRuns(s.Tenant)
	stored := q.codec.encodeBody(s.Body)
	callback, events := s.Callback.fields()
	code, fields, err := q.run(ctx, enqueueScript,
		s.Key, s.ID, s.Tenant, s.Caller, s.Client, s.Class, priority, s.BodyHash,
		number, prefix, front, stored, sealed, s.Body.Requires,
		limit.MaxQueue, limit.MaxQueueBytes, ownJobs, ownBytes, weigh(s.Body, stored, sealed)+int64(len(s.Label)), doorTime(s.Door), q.order(), s.Shape, daily.Milliseconds(), s.Band.Mark(),
		callback, events, maxTenantCallbacks, maxCallbacks, gapOf(limit.TenantRate(s.Tenant)), s.Place, s.Label)
	if err != nil {
		return Accepted{}, err
	}
	if code == "tenant_spent" || code == "tenant_rate" {
		p := parser{r: record{"wait": fields[0]}}
		wait := time.Duration(p.int("wait")) * time.Millisecond
		if code == "tenant_rate" {
			return Accepted{}, RateError{wait}
		}
		return Accepted{}, SpentError{wait}
	}
	existing := code == "existing"
	if err := refusal(code); err != nil && !existing {
		return Accepted{}, err
	}
	r := replied(fields)
	j, err := r.job()
	if err != nil || existing {
		return Accepted{Job: j, Existing: existing, Position: -1}, err
	}
	q.requires.keep(s.Class, s.Body.Requires) // for the look that follows
	p := parser{r: r}
	position := int(p.int("position"))
	delete(r, "position") // not a field of the record
	q.copies.change(s.Key, r, func(c *copied) { c.stored, c.sealed, c.requires = stored, sealed, string(s.Body.Requires) })
	return Accepted{Job: j, Position: position}, p.err
}

// gapOf returns the time between two prompts at rate prompts a minute, in microseconds; 0 for no
// limit.
func gapOf(rate int) int64 {
	if rate <= 0 {
		return 0
	}
	return max(time.Minute.Microseconds()/int64(rate), 1)
}

// TakeNumber uses up the next number of a tenant's counter, as ComfyUI does for prompts that it
// rejects. The first is 0.
func (q *WaitingJobs) TakeNumber(ctx context.Context, tenant string) (int64, error) {
	_, reply, err := q.run(ctx, numberScript, tenant)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return n, nil
}
