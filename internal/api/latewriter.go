package api

import "net/http"

// LateWriter changes the headers of an answer at the last moment, when its
// status is known and an instance has set its own.
type LateWriter struct {
	http.ResponseWriter
	Late func(header http.Header, status int)
	done bool
}

// WriteHeader implements http.ResponseWriter.
func (w *LateWriter) WriteHeader(status int) {
	interim := status < http.StatusOK && status != http.StatusSwitchingProtocols
	if !w.done && !interim {
		w.done = true
		w.Late(w.Header(), status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *LateWriter) Write(p []byte) (int, error) {
	if !w.done {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush and take over the connection.
func (w *LateWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
