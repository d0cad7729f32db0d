package caddymodule

import (
	"log/slog"
	"net"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"

	"github.com/comfyhub/comfyhub/internal/hub"
)

// auditLog is the name of the logger that says who did what. A Caddyfile sends it to an
// output of its own with `log { include comfyhub.audit }`.
const auditLog = "comfyhub.audit"

func auditHandler(ctx caddy.Context) slog.Handler {
	return zapslog.NewHandler(ctx.Logger().Core(), zapslog.WithName(auditLog), zapslog.AddStacktraceAt(slog.Level(127)))
}

// auditedParameters are those of the admin endpoint that say what a command is about. None is
// a secret.
var auditedParameters = []string{"instance", "tenant", "agent", "machine", "job", "id", "name", "scope", "expires", "deadline"}

// audited has a handler of the admin endpoint written down, unless it only reads.
func audited(handler adminHandler) adminHandler {
	return func(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
		err := handler(h, w, r)
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			return err
		}
		address, _, splitErr := net.SplitHostPort(r.RemoteAddr)
		if splitErr != nil {
			address = r.RemoteAddr // a Unix socket has no port
		}
		attrs := []any{"by", "admin endpoint", "address", address, "action", r.Method + " " + r.URL.Path}
		query := r.URL.Query()
		for _, name := range auditedParameters {
			if value := query.Get(name); value != "" {
				attrs = append(attrs, "of_"+name, value)
			}
		}
		result := "ok"
		if err != nil {
			result = err.Error()
		}
		h.Audit("command", slices.Concat(attrs, []any{"result", result})...)
		return err
	}
}
