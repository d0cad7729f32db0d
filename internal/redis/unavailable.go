package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// ErrUnavailable says that Redis cannot be used now: it cannot be reached, does not
// answer in time, is still loading, takes no writes or has no memory left.
// Whether a write that failed so was done is not known. Errors that match it
// also wrap their cause.
var ErrUnavailable = errors.New("redis: unavailable")

// unavailableError adds ErrUnavailable to a cause without losing it.
type unavailableError struct{ cause error }

func (e *unavailableError) Error() string   { return "redis: unavailable: " + e.cause.Error() }
func (e *unavailableError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }

// unavailableReplies begin the errors of a server that is there but of no use now.
// They are looked for anywhere in the text, because a script that meets one
// in the middle passes it on inside its own message.
var unavailableReplies = [...]string{
	"LOADING ", "READONLY ", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN ", "OOM ", "MISCONF ",
	"BUSY ", "NOREPLICAS ", "NOAUTH ", "WRONGPASS ", "NOPERM ", "UNBLOCKED ",
	"ERR max number of clients reached",
}

// classify is the one place that decides what ErrUnavailable is.
func classify(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, goredis.Nil), errors.Is(err, ErrUnavailable):
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		// The caller went away, not Redis.
		return err
	case isNetwork(err):
		return &unavailableError{err}
	}
	for _, reply := range unavailableReplies {
		if strings.Contains(err.Error(), reply) {
			return &unavailableError{err}
		}
	}
	return err
}

// isNetwork reports errors after which it is not known whether the server has
// seen the command.
func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, goredis.ErrClosed) || errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted)
}

// errorHook classifies the error of every command. Plain commands only read,
// so it sends those again whose connection broke; scripts are sent again by
// Run, which sees to it that they take effect once.
type errorHook struct{}

func (errorHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (errorHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		var err error
		if strings.HasPrefix(cmd.Name(), "eval") {
			err = next(ctx, cmd)
		} else {
			err = tryAgain(ctx, func() error { return next(ctx, cmd) })
		}
		err = classify(ctx, err)
		cmd.SetErr(err)
		return err
	}
}

func (errorHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := tryAgain(ctx, func() error {
			for _, cmd := range cmds {
				cmd.SetErr(nil) // of the try before
			}
			return next(ctx, cmds)
		})
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				cmd.SetErr(classify(ctx, cmd.Err()))
			}
		}
		return classify(ctx, err)
	}
}
