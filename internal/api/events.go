package api

import (
	"net/http"
	"time"
)

const (
	// EventBeat is the pause between the signs of life of a stream of events.
	EventBeat = 15 * time.Second
	// eventTimeout is how long a client may take to read one event.
	eventTimeout = 30 * time.Second
)

// EventWriter writes server-sent events. A client that does not read is cut off.
type EventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// WriteEvents begins an answer that is a stream of events. Close must be called.
func WriteEvents(w http.ResponseWriter) EventWriter {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	w.WriteHeader(http.StatusOK)
	return EventWriter{w: w, control: http.NewResponseController(w)}
}

// Send writes an event; data is one line.
func (e EventWriter) Send(event string, data []byte) error {
	return e.write("event: " + event + "\ndata: " + string(data) + "\n\n")
}

// Beat writes a comment: proxies cut connections that are silent.
func (e EventWriter) Beat() error { return e.write(":\n\n") }

// Close takes the deadline back: the connection may serve further requests.
func (e EventWriter) Close() { _ = e.control.SetWriteDeadline(time.Time{}) }

func (e EventWriter) write(text string) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(eventTimeout)) // some writers have none
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.control.Flush()
}
