package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// ErrUnavailable means that Redis cannot be used now: it cannot be reached, does
// not answer in time, is still loading, refuses writes or is out of memory. A write
// that failed with it may or may not have been done. Errors that match it also wrap
// their cause.
var ErrUnavailable = errors.New("redis: unavailable")

// unavailableError adds ErrUnavailable to a cause without losing it.
type unavailableError struct{ cause error }

func (e *unavailableError) Error() string   { return "redis: unavailable: " + e.cause.Error() }
func (e *unavailableError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }

// unavailableReplies are the prefixes of errors from a server that answers but
// cannot be used now. They are searched for anywhere in the text, because a script
// that hits one halfway includes it in its own message.
var unavailableReplies = [...]string{
	"LOADING ", "READONLY ", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN ", "OOM ", "MISCONF ",
	"BUSY ", "IOERR ", "NOREPLICAS ", "NOAUTH ", "WRONGPASS ", "NOPERM ", "UNBLOCKED ",
	"ERR max number of clients reached",
	"The user executing the script can't ", // Redis 6 and 7.0, where later versions say NOPERM
}

// classify is the one place that decides what counts as ErrUnavailable.
func classify(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, goredis.Nil), errors.Is(err, ErrUnavailable):
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		// The caller gave up, not Redis.
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

// isNetwork reports errors after which it is unknown whether the server has seen
// the command.
func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, goredis.ErrClosed) || errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted)
}

// errorHook classifies the error of every command. Plain commands only read, so the
// hook resends those whose connection broke; scripts are resent by Run, which
// ensures that they take effect once.
type errorHook struct{ observe func(Request) }

func (errorHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (h errorHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") { // Run reports it
			err := classify(ctx, next(ctx, cmd))
			cmd.SetErr(err)
			return err
		}
		began := time.Now()
		err := classify(ctx, tryAgain(ctx, func() error { return next(ctx, cmd) }))
		report(ctx, h.observe, false, began, err)
		cmd.SetErr(err)
		return err
	}
}

func (h errorHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		began := time.Now()
		err := tryAgain(ctx, func() error {
			for _, cmd := range cmds {
				cmd.SetErr(nil) // of the previous attempt
			}
			return next(ctx, cmds)
		})
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				cmd.SetErr(classify(ctx, cmd.Err()))
			}
		}
		err = classify(ctx, err)
		report(ctx, h.observe, false, began, err)
		return err
	}
}
