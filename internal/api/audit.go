package api

import (
	"net/http"
	"strings"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
)

// deeds are the parameters of a query that say what an audited request is about. None of them
// is a secret.
var deeds = [...]string{"instance", "tenant", "agent"}

// audited has an answerer write down who asked for what, and what became of it: neither a
// body nor a path with the name of a file.
func (s *Server) audited(f found, path aiohttp.Path, answer answerer) answerer {
	return func(w http.ResponseWriter, r *http.Request, a Requester) {
		kept := &statusWriter{ResponseWriter: w}
		answer(kept, r, a)
		attrs := append(Who(a), "action", r.Method+" "+f.pattern)
		if id, ok := strings.CutPrefix(path.String(), "/hub/jobs/"); ok {
			attrs = append(attrs, "job", strings.TrimSuffix(id, "/cancel"))
		}
		query := QueryOf(r)
		for _, name := range deeds {
			if value := query.Get(name); value != "" {
				attrs = append(attrs, "of_"+name, value)
			}
		}
		s.core.Audit("request", append(attrs, "status", kept.code())...)
	}
}

// Who says who asks, for the audit log.
func Who(a Requester) []any {
	attrs := []any{"tenant", a.Tenant, "address", a.ip}
	if a.Key != "" {
		attrs = append(attrs, "key", a.Key)
	}
	if a.acts {
		attrs = append(attrs, "acts_for_tenant", true)
	}
	if a.Operator {
		attrs = append(attrs, "operator", true)
	}
	if a.Elsewhere {
		attrs = append(attrs, "operator_elsewhere", true)
	}
	return attrs
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter

	status int
}

// Unwrap gives [http.ResponseController] the writer below.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}
