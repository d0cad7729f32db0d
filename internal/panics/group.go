// Package panics contains panics. A panic ends the whole process, and with it
// everybody's work; in a goroutine that works for one job, one client or one
// instance, it ends no more than that.
package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// ErrPanic says that the hub's own code has failed. The log has the stack. A
// second attempt with the same data is likely to fail in the same way.
var ErrPanic = errors.New("the hub failed")

// Do calls f and returns its error. If f panics, Do logs that with the stack and
// returns an ErrPanic. The log must not be nil; work names what f does, as in
// "copying an output".
func Do(log *slog.Logger, work string, f func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("panic", "work", work, "panic", cause, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %s", ErrPanic, work)
		}
	}()
	return f()
}

// Group runs functions in goroutines of their own. A panic in one of them is
// logged and ends only that one. The zero value is ready for use.
type Group struct{ running sync.WaitGroup }

// Go calls f in a goroutine, see Do.
func (g *Group) Go(log *slog.Logger, work string, f func()) {
	g.running.Go(func() { _ = Do(log, work, func() error { f(); return nil }) })
}

// Wait returns when all functions have.
func (g *Group) Wait() { g.running.Wait() }
