package hub

import (
	"errors"
	"math"
	"time"
)

// Reached is one of a tenant's own limits that it has reached with a prompt, in words for its user.
type Reached struct {
	// Limit is its name in the Caddyfile, Kind the type of the error.
	Limit, Kind string
	// Message says what is wrong, Details what to do about it.
	Message, Details string
	// RetryAfter is when to try again, in seconds; 0 if time alone does not help.
	RetryAfter int
}

// ReachedLimit returns which of the tenant's own limits an error of [Submitter.Submit] is about.
func ReachedLimit(err error) (Reached, bool) {
	var spent TimeSpentError
	var rate RateError
	switch {
	case errors.As(err, &spent):
		return Reached{
			Limit: "gpu_seconds", Kind: "tenant_time_used_up", Message: "Your GPU time of the last 24 hours is used up",
			Details: "You can go on in " + InMinutes(spent.Wait) + ".", RetryAfter: seconds(spent.Wait),
		}, true
	case errors.As(err, &rate):
		return Reached{
			Limit: "rate", Kind: "tenant_rate", Message: "You send too many prompts a minute",
			Details: "You can go on in " + inSeconds(rate.Wait) + ".", RetryAfter: seconds(rate.Wait),
		}, true
	case errors.Is(err, ErrTenantStorage):
		return Reached{
			Limit: "storage", Kind: "tenant_storage_full", Message: "Your files take all the storage that they may",
			Details: "Delete results or uploads that you no longer need; their space is free within an hour.", RetryAfter: int(time.Hour / time.Second),
		}, true
	case errors.Is(err, ErrTenantQueueSize):
		return Reached{
			Limit: "queue_size", Kind: "tenant_queue_full", Message: "Too many of your prompts are waiting",
			Details: "Try again when some of your own prompts have been executed.", RetryAfter: 10,
		}, true
	case errors.Is(err, ErrTenantWaiting):
		return Reached{
			Limit: "waiting", Kind: "tenant_queue_full", Message: "Too many of your prompts are waiting",
			Details: "Try again when some of your own prompts have been executed.", RetryAfter: 10,
		}, true
	}
	return Reached{}, false
}

// seconds rounds up, to at least 1.
func seconds(d time.Duration) int { return max(int(math.Ceil(d.Seconds())), 1) }

// inSeconds returns a time of at least a second in words.
func inSeconds(d time.Duration) string {
	return (time.Duration(seconds(d)) * time.Second).String()
}
