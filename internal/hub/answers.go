package hub

import (
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Every answer that a client sees is made here, so that the hub speaks with
// one voice: ComfyUI's own shapes where ComfyUI has an answer, and one shape
// for what only a hub can say.

// writeJSON answers with an encoded JSON body.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// writeValue answers 200 with a JSON value in Python's style.
func writeValue(w http.ResponseWriter, v pyjson.Value) {
	writeJSON(w, http.StatusOK, pyjson.Marshal(v))
}

// writeText answers in plain text, as aiohttp does.
func writeText(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// writeEmpty answers with no body and no Content-Type: several clients choke
// on "{}" where ComfyUI sends nothing.
func writeEmpty(w http.ResponseWriter, status int) {
	h := w.Header()
	h["Content-Type"] = nil
	h.Set("Content-Length", "0")
	w.WriteHeader(status)
}

// writeTrouble is ComfyUI's answer to what it does not understand. Clients know
// it, so malformed requests get it too.
func writeTrouble(w http.ResponseWriter, r *http.Request) {
	contentType, body := files.Trouble(r)
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = w.Write(body)
}

// writeNotFound is ComfyUI's answer to a path that is no route: its catch-all
// static route knows GET and HEAD only.
func writeNotFound(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		writeNotAllowed(w, "GET,HEAD")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusNotFound)
}

// writeNotAllowed is ComfyUI's answer to a known path with another method.
func writeNotAllowed(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	writeText(w, http.StatusMethodNotAllowed, "405: Method Not Allowed")
}

// writeTooLarge is aiohttp's answer to a body over the limit.
func writeTooLarge(w http.ResponseWriter, limit, actual int64) {
	w.Header().Set("Connection", "close")
	writeText(w, http.StatusRequestEntityTooLarge,
		fmt.Sprintf("Maximum request body size %d exceeded, actual body size %d", limit, actual))
}

// hubError is an answer that only a hub can give: Redis is away, the queue is
// full, no instance is there. It has the shape of a /prompt error, which
// every client shows to its user.
type hubError struct {
	status     int
	kind       string
	message    string
	details    string
	retryAfter int // seconds; 0 for none
}

func writeHubError(w http.ResponseWriter, e hubError) {
	if e.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.retryAfter))
	}
	writeJSON(w, e.status, promptError(e.kind, e.message, e.details))
}

// promptError is the body of a refused prompt.
func promptError(kind, message, details string) []byte {
	return pyjson.Marshal(pyjson.NewObject(
		pyjson.Member{Key: "error", Value: pyjson.NewObject(
			pyjson.Member{Key: "type", Value: pyjson.String(kind)},
			pyjson.Member{Key: "message", Value: pyjson.String(message)},
			pyjson.Member{Key: "details", Value: pyjson.String(details)},
			pyjson.Member{Key: "extra_info", Value: pyjson.NewObject()},
		)},
		pyjson.Member{Key: "node_errors", Value: pyjson.NewObject()},
	))
}

// writeAway answers while Redis cannot be reached: the listing or the queue
// would not be complete, and a shorter one would be a lie.
func writeAway(w http.ResponseWriter) {
	writeHubError(w, hubError{
		status: http.StatusServiceUnavailable, kind: "queue_unavailable",
		message: "The hub's queue cannot be reached right now",
		details: "Nothing was lost. Try again in a few seconds.", retryAfter: 2,
	})
}

// writeNoKeys answers while the storage has not given the hub its keys yet.
func writeNoKeys(w http.ResponseWriter) {
	writeHubError(w, hubError{
		status: http.StatusServiceUnavailable, kind: "keys_unavailable",
		message: "The hub cannot read its keys right now",
		details: "They protect API keys and links. Try again in a few seconds.", retryAfter: 5,
	})
}

// writeNoInstance answers a call that needs an instance while none is there.
func writeNoInstance(w http.ResponseWriter) {
	writeHubError(w, hubError{
		status: http.StatusBadGateway, kind: "no_instance",
		message: "No ComfyUI instance is connected to the hub",
		details: "This call is answered by an instance, and none can be reached.", retryAfter: 5,
	})
}

// writeErrorText is an error in the shape of the newer routes.
func writeErrorText(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, pyjson.Marshal(pyjson.NewObject(pyjson.Member{Key: "error", Value: pyjson.String(text)})))
}
