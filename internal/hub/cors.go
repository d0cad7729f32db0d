package hub

import (
	"net/http"
	"strings"
)

// corsWriter adds the headers with which ComfyUI lets pages of another site
// read its answers, as --enable-cors-header does. They are set at the last
// moment, so that those of an instance with the same option are replaced and
// not repeated: browsers refuse an answer that has one twice.
type corsWriter struct {
	http.ResponseWriter
	origin  string
	methods string
	done    bool
}

// withCORS lets pages from origin read the answers; "*" means from anywhere.
func (h *Hub) withCORS(w http.ResponseWriter, origin string) http.ResponseWriter {
	methods := "POST, GET, DELETE, PUT, OPTIONS"
	if v := h.dispatch.Version(); !v.Known() || v.AtLeast(0, 4, 0) {
		methods += ", PATCH"
	}
	return &corsWriter{ResponseWriter: w, origin: origin, methods: methods}
}

// WriteHeader implements http.ResponseWriter.
func (w *corsWriter) WriteHeader(status int) {
	if !w.done && status != http.StatusContinue {
		w.done = true
		header := w.Header()
		for key := range header {
			if strings.HasPrefix(key, "Access-Control-") {
				delete(header, key)
			}
		}
		if !thrown(status) {
			header.Set("Access-Control-Allow-Origin", w.origin)
			header.Set("Access-Control-Allow-Methods", w.methods)
			header.Set("Access-Control-Allow-Headers", "Content-Type, Authorization")
			header.Set("Access-Control-Allow-Credentials", "true")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *corsWriter) Write(p []byte) (int, error) {
	if !w.done {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush and take over the connection.
func (w *corsWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// thrown reports answers that are exceptions in ComfyUI: its middleware, which
// adds the headers, does not see those.
func thrown(status int) bool {
	switch status {
	case http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusInternalServerError:
		return true
	}
	return false
}
