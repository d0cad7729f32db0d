// Package refusal says why the hub does not take a prompt although ComfyUI would: the queue is
// full, a tenant has reached a limit, the storage is away. The core makes a Refusal of its error
// once, and the dialects only give it their shape.
package refusal

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"time"
)

// KindCallback is the Kind of [Callback].
const KindCallback = "invalid_callback"

// Refusal is an error that its sender is told of, in the words of ComfyUI's dialect.
type Refusal struct {
	// Status is that of HTTP.
	Status int
	// Kind is the type of the error.
	Kind string
	// Limit is the name in the Caddyfile of the tenant's own limit that was reached; empty if it
	// was none.
	Limit string
	// Message says what is wrong, Details what to do about it.
	Message, Details string
	// RetryAfter is when to try again, in seconds; 0 if time alone does not help.
	RetryAfter int
	// Noted is what the operator sees among the faults, and Log what the log says besides; empty for
	// nothing.
	Noted, Log string
	// Cause is the error behind it; nil if there is none.
	Cause error
}

// Error is that of the cause.
func (r *Refusal) Error() string {
	if r.Cause != nil {
		return r.Cause.Error()
	}
	return "refused: " + r.Kind
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Cause }

const nothingLost = "Nothing was lost. Try again in a few seconds."

// TimeSpent refuses a tenant that has used up its instance time for a day, until wait has passed.
func TimeSpent(wait time.Duration) *Refusal {
	return &Refusal{
		Status: http.StatusTooManyRequests, Limit: "gpu_seconds", Kind: "tenant_time_used_up", Message: "Your GPU time of the last 24 hours is used up",
		Details: "You can go on in " + InMinutes(wait) + ".", RetryAfter: seconds(wait), Noted: "the GPU time of the last 24 hours is used up",
	}
}

// Rate refuses a tenant that posts too many prompts a minute, until wait has passed.
func Rate(wait time.Duration) *Refusal {
	after := seconds(wait)
	return &Refusal{
		Status: http.StatusTooManyRequests, Limit: "rate", Kind: "tenant_rate", Message: "You send too many prompts a minute",
		Details: "You can go on in " + (time.Duration(after) * time.Second).String() + ".", RetryAfter: after, Noted: "too many prompts a minute of this tenant",
	}
}

// TenantStorage refuses a tenant whose files take all that they may.
func TenantStorage() *Refusal {
	return &Refusal{
		Status: http.StatusTooManyRequests, Limit: "storage", Kind: "tenant_storage_full", Message: "Your files take all the storage that they may",
		Details:    "Delete results or uploads that you no longer need; their space is free within an hour.",
		RetryAfter: seconds(time.Hour), Noted: "the files of this tenant have reached their limit",
	}
}

// TenantQueue refuses a tenant of which as much waits as a limit allows.
func TenantQueue(limit string) *Refusal {
	return &Refusal{
		Status: http.StatusTooManyRequests, Limit: limit, Kind: "tenant_queue_full", Message: "Too many of your prompts are waiting",
		Details: "Try again when some of your own prompts have been executed.", RetryAfter: 10, Noted: "too many prompts of this tenant wait",
	}
}

// Uploads refuses a tenant that can upload no more, by the limit inputs or input_files.
func Uploads(limit string) *Refusal {
	r := &Refusal{
		Status: http.StatusInsufficientStorage, Limit: limit, Kind: "tenant_inputs_full", Message: "Your uploads take all the space that they may",
		Details: "The operator can raise it, or let unused uploads go (input_age).",
	}
	if limit == "input_files" {
		r.Message = "You have uploaded as many files as you may"
	}
	return r
}

// QueueFull refuses everybody.
func QueueFull() *Refusal {
	return &Refusal{
		Status: http.StatusTooManyRequests, Kind: "queue_full", Message: "The hub's queue is full",
		Details: "Try again when some prompts have been executed.", RetryAfter: 10, Noted: "the queue is full",
	}
}

// Fetching refuses a prompt whose files would have to be fetched, while too many others' are.
func Fetching() *Refusal {
	return &Refusal{
		Status: http.StatusServiceUnavailable, Kind: "busy", Message: "The hub is fetching the files of too many prompts right now",
		Details: nothingLost, RetryAfter: 5,
	}
}

// Storage refuses a prompt whose files the storage does not take.
func Storage() *Refusal {
	return &Refusal{
		Status: http.StatusServiceUnavailable, Kind: "storage_unavailable", Message: "The hub's storage does not work now", RetryAfter: 10,
		Log: "the storage does not take the files of a prompt",
	}
}

// Callback refuses a prompt for what is wrong with its callback.
func Callback(reason string) *Refusal {
	return &Refusal{
		Status: http.StatusBadRequest, Kind: KindCallback, Message: "The prompt's callback cannot be used", Details: reason,
		Noted: "callback: " + reason, Cause: errors.New(reason),
	}
}

// CallbacksFull refuses a prompt for whose callback there is no room.
func CallbacksFull() *Refusal {
	return &Refusal{
		Status: http.StatusTooManyRequests, Kind: "callbacks_full", Message: "Too many callbacks are not delivered yet",
		Details: "Try again when some have been, or without a callback.", RetryAfter: 60,
	}
}

// OfJobs is an error in the words of a dialect whose clients post jobs.
func OfJobs(err error) error { return told(err, "jobs", "") }

// OfRequests is the same where they post requests.
func OfRequests(err error) error { return told(err, "requests", nothingLost) }

// told calls prompts by another name. aboutStorage is said when the storage is away.
func told(err error, name, aboutStorage string) error {
	var r *Refusal
	if !errors.As(err, &r) {
		return err
	}
	out := *r
	switch r.Kind {
	case "busy":
		out.Message = strings.Replace(r.Message, "prompts", name, 1)
	case "queue_full":
		out.Details = "Try again when some jobs have ended."
	case "storage_unavailable":
		out.Details, out.Log = aboutStorage, "the storage does not take the files of a job"
	case "tenant_inputs_full":
		out.Message, out.Details = "Your uploads have reached their limit", ""
	}
	return &out
}

// seconds rounds up, to at least 1.
func seconds(d time.Duration) int { return max(int(math.Ceil(d.Seconds())), 1) }

// InMinutes returns a time of at least a minute in hours and minutes, such as 3h5m.
func InMinutes(d time.Duration) string {
	return strings.TrimSuffix(max(d.Round(time.Minute), time.Minute).String(), "0s")
}
