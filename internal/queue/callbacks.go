package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Bounds of callbacks. A job counts until its last event was delivered or given up.
const (
	maxTenantCallbacks = 10_000
	maxCallbacks       = 50_000
	// maxTenantDead and maxDead bound the events that could not be delivered; beyond them the
	// oldest go, a tenant's own first.
	maxTenantDead = 1000
	maxDead       = 10_000
	// deadAge is how long these are kept.
	deadAge = 7 * 24 * time.Hour
	// callbackLease is how long a hub may take to send an event; progressLease is the same for
	// progress, so that an end waits no longer than this behind it.
	callbackLease = time.Minute
	progressLease = 15 * time.Second
)

var (
	// ErrCallbacksFull means that too many jobs have callbacks that have not been delivered yet.
	ErrCallbacksFull = errors.New("queue: too many callbacks wait")
	// ErrTenantCallbacksFull is the same for the jobs of one tenant.
	ErrTenantCallbacksFull = errors.New("queue: too many callbacks of this tenant wait")
)

// The events of a job that a callback can report.
const (
	EventQueued    = "queued"
	EventStarted   = "started"
	EventProgress  = "progress"
	EventDone      = "done"
	EventFailed    = "failed"
	EventCancelled = "cancelled"
)

// Callback says where a job's events go.
type Callback struct {
	URL string
	// Events are the ones wanted.
	Events []string
}

// fields returns the callback in the form of a job's record.
func (c *Callback) fields() (link, events string) {
	if c == nil {
		return "", ""
	}
	return c.URL, " " + strings.Join(c.Events, " ") + " "
}

// CallbackEvent is something that is reported to a callback. Times are milliseconds since the Unix
// epoch by Redis's clock, and zero for what has not happened yet.
type CallbackEvent struct {
	// ID identifies the event; the same event always has the same.
	ID     string
	Tenant string
	// Prompt is the job's id as its client knows it.
	Prompt string
	URL    string
	// Name is one of the constants above.
	Name       string
	At         int64
	CreatedAt  int64
	StartedAt  int64
	FinishedAt int64
	// Reason says why the job failed; empty if it did not.
	Reason string
	// Progress is how far the node was that was running at the event, from 0 to 1.
	Progress float64
	// Attempts is how often sending it has failed.
	Attempts int
}

// TakenCallback is an event that this hub is to send.
type TakenCallback struct {
	CallbackEvent
	// Age is how long it has waited.
	Age time.Duration

	key, turn string
}

// WaitingCallback is an event that has not been delivered yet, or could not be.
type WaitingCallback struct {
	CallbackEvent
	// Error says why the last attempt to deliver it failed.
	Error string
	// Time is when it is due, or when it was given up, in milliseconds since the Unix epoch.
	Time int64
}

// TakeCallbacks gives due events to this hub, at most one per tenant, and none of the tenants in
// skip. Each is the hub's own for a minute, progress for 15 s; it must be settled by then.
func (q *Callbacks) TakeCallbacks(ctx context.Context, bound int, skip []string) ([]TakenCallback, error) {
	args := []any{milliseconds(callbackLease), bound, milliseconds(deadAge), milliseconds(progressLease)}
	for _, tenant := range skip {
		args = append(args, tenant)
	}
	_, fields, err := q.run(ctx, takeCallbacksScript, args...)
	if err != nil {
		return nil, err
	}
	var taken []TakenCallback
	for f := range slices.Chunk(fields, 8) {
		if len(f) < 8 {
			return nil, fmt.Errorf("%w: callback", ErrCorrupt)
		}
		p := parser{r: record{"attempts": f[5], "age": f[6]}}
		t := TakenCallback{key: f[0], turn: f[1], Age: time.Duration(p.int("age")) * time.Millisecond}
		t.CallbackEvent, err = readCallbackEvent(f[7], f[2], f[3], f[4], int(p.int("attempts")))
		if err = errors.Join(err, p.err); err != nil {
			return nil, err
		}
		taken = append(taken, t)
	}
	return taken, nil
}

// readCallbackEvent reads an event as scripts/callbacks.lua writes it.
func readCallbackEvent(packed, tenant, prompt, link string, attempts int) (CallbackEvent, error) {
	parts, ok := redis.Unpack(packed)
	if !ok || len(parts) < 7 {
		return CallbackEvent{}, fmt.Errorf("%w: event of a callback", ErrCorrupt)
	}
	p := parser{r: record{"at": parts[2], "created": parts[3], "started": parts[4], "finished": parts[5]}}
	if len(parts) > 7 { // a hub of an older version writes it differently
		p.r["progress"] = parts[7]
	}
	return CallbackEvent{
		ID: parts[0], Name: parts[1], Reason: strings.ToValidUTF8(parts[6], ""),
		At: p.int("at"), CreatedAt: p.int("created"), StartedAt: p.int("started"), FinishedAt: p.int("finished"),
		Progress: p.float("progress"), Tenant: tenant, Prompt: prompt, URL: link, Attempts: attempts,
	}, p.err
}

// Delivered notes that a taken event has arrived. Errors of this and the methods below: ErrStale if
// another hub has the event now.
func (q *Callbacks) Delivered(ctx context.Context, t TakenCallback) error {
	return q.settleCallback(ctx, t, "delivered", 0, "")
}

// RetryCallback notes that a taken event did not arrive; it is due again after a pause.
func (q *Callbacks) RetryCallback(ctx context.Context, t TakenCallback, pause time.Duration, why string) error {
	return q.settleCallback(ctx, t, "failed", pause, why)
}

// PutOffCallback gives back a taken event that was not sent.
func (q *Callbacks) PutOffCallback(ctx context.Context, t TakenCallback, pause time.Duration) error {
	return q.settleCallback(ctx, t, "later", pause, "")
}

// BuryCallback gives up a taken event. It is kept for a week and can be replayed; progress is
// dropped.
func (q *Callbacks) BuryCallback(ctx context.Context, t TakenCallback, why string) error {
	return q.settleCallback(ctx, t, "dead", 0, why)
}

func (q *Callbacks) settleCallback(ctx context.Context, t TakenCallback, what string, pause time.Duration, why string) error {
	code, _, err := q.run(ctx, settleCallScript, t.key, t.turn, what, milliseconds(pause), why, maxTenantDead, maxDead)
	if err != nil {
		return err
	}
	return refusal(code)
}

// ReplayCallback resends an event that was given up. tenant is who asks; "" may replay anybody's.
// Errors: ErrNotFound.
func (q *Callbacks) ReplayCallback(ctx context.Context, tenant, id string) error {
	code, _, err := q.run(ctx, replayCallScript, id, tenant)
	if err != nil {
		return err
	}
	return refusal(code)
}

// WaitingCallbacks lists events waiting to be delivered, the first of each job; "" means of all
// tenants.
func (q *Callbacks) WaitingCallbacks(ctx context.Context, tenant string, bound int) ([]WaitingCallback, error) {
	return q.listCallbacks(ctx, waitingCallsScript, tenant, bound)
}

// DeadCallbacks lists events that were given up, the latest first.
func (q *Callbacks) DeadCallbacks(ctx context.Context, tenant string, bound int) ([]WaitingCallback, error) {
	return q.listCallbacks(ctx, deadCallsScript, tenant, bound)
}

func (q *Callbacks) listCallbacks(ctx context.Context, s *redis.Script, tenant string, bound int) ([]WaitingCallback, error) {
	_, fields, err := q.run(ctx, s, tenant, bound)
	if err != nil {
		return nil, err
	}
	var list []WaitingCallback
	for f := range slices.Chunk(fields, 7) {
		if len(f) < 7 {
			return nil, fmt.Errorf("%w: callback", ErrCorrupt)
		}
		p := parser{r: record{"attempts": f[3], "time": f[5]}}
		w := WaitingCallback{Error: f[4], Time: p.int("time")}
		w.CallbackEvent, err = readCallbackEvent(f[6], f[0], f[1], f[2], int(p.int("attempts")))
		if err = errors.Join(err, p.err); err != nil {
			return nil, err
		}
		list = append(list, w)
	}
	return list, nil
}
