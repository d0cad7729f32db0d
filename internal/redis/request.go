package redis

import (
	"context"
	"errors"
	"time"
)

// Request is one request to Redis that is over: a script, a command, or a pipeline.
type Request struct {
	// Write means that it may have changed something.
	Write bool
	// Took is how long the caller waited, with all attempts.
	Took time.Duration
	// Err is why it failed; nil if it did not, or if the caller gave it up.
	Err error
}

// report passes on how a request went that began at some time and has ended.
func report(ctx context.Context, observe func(Request), write bool, began time.Time, err error) {
	if errors.Is(err, Nil) || errors.Is(ctx.Err(), context.Canceled) {
		err = nil
	}
	observe(Request{Write: write, Took: time.Since(began), Err: err})
}
