package caddymodule

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
)

// logSwitch is a logger that outlives configurations. A hub passes its logger to
// all its parts when it starts, but Caddy closes the outputs of a configuration
// that is replaced. If the hub kept the logger of its first configuration, lines
// would be lost, and changing the level would have no effect.
type logSwitch struct {
	current atomic.Pointer[slog.Handler]
}

// use sends all further lines to a handler.
func (s *logSwitch) use(h slog.Handler) { s.current.Store(&h) }

// logger returns the logger to hand out.
func (s *logSwitch) logger() *slog.Logger { return slog.New(&switched{logs: s}) }

// switched passes records to the handler that is current when they arrive, with the
// attributes and groups added on the way.
type switched struct {
	logs *logSwitch
	add  []func(slog.Handler) slog.Handler
}

func (h *switched) handler() slog.Handler {
	handler := *h.logs.current.Load()
	for _, add := range h.add {
		handler = add(handler)
	}
	return handler
}

func (h *switched) with(add func(slog.Handler) slog.Handler) slog.Handler {
	return &switched{logs: h.logs, add: append(slices.Clip(h.add), add)}
}

// Enabled reports whether lines of a level are logged at all.
func (h *switched) Enabled(ctx context.Context, level slog.Level) bool {
	return (*h.logs.current.Load()).Enabled(ctx, level)
}

// Handle writes a line.
func (h *switched) Handle(ctx context.Context, r slog.Record) error {
	return h.handler().Handle(ctx, r)
}

// WithAttrs returns a handler that adds attributes.
func (h *switched) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(handler slog.Handler) slog.Handler { return handler.WithAttrs(attrs) })
}

// WithGroup returns a handler that puts attributes into a group.
func (h *switched) WithGroup(name string) slog.Handler {
	return h.with(func(handler slog.Handler) slog.Handler { return handler.WithGroup(name) })
}
