package api

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Every answer that a client sees is made here, so that the hub speaks with
// one voice: ComfyUI's own shapes where ComfyUI has an answer, and one shape
// for what only a hub can say.

// WriteJSON answers with an encoded JSON body.
func WriteJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// WriteValue answers 200 with a JSON value in Python's style.
func WriteValue(w http.ResponseWriter, v pyjson.Value) {
	WriteJSON(w, http.StatusOK, pyjson.Marshal(v))
}

// WriteText answers in plain text, as aiohttp does.
func WriteText(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// WriteEmpty answers with no body and no Content-Type: several clients choke
// on "{}" where ComfyUI sends nothing.
func WriteEmpty(w http.ResponseWriter, status int) {
	h := w.Header()
	h["Content-Type"] = nil
	h.Set("Content-Length", "0")
	w.WriteHeader(status)
}

// WriteInternalError is ComfyUI's answer to what it does not understand. Clients know
// it, so malformed requests get it too.
func WriteInternalError(w http.ResponseWriter, r *http.Request) {
	contentType, body := files.Trouble(r)
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = w.Write(body)
}

// WriteNotFound is ComfyUI's answer to a path that is no route: its catch-all
// static route knows GET and HEAD only.
func WriteNotFound(w http.ResponseWriter, r *http.Request) {
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
	WriteText(w, http.StatusMethodNotAllowed, "405: Method Not Allowed")
}

// WriteTooLarge is aiohttp's answer to a body over the limit.
func WriteTooLarge(w http.ResponseWriter, limit, actual int64) {
	w.Header().Set("Connection", "close")
	WriteText(w, http.StatusRequestEntityTooLarge,
		fmt.Sprintf("Maximum request body size %d exceeded, actual body size %d", limit, actual))
}

// Error is an answer that only a hub can give: Redis is away, the queue is
// full, no instance is there. It has the shape of a /prompt error, which
// every client shows to its user.
type Error struct {
	Status     int
	Kind       string
	Message    string
	Details    string
	RetryAfter int // seconds; 0 for none
}

// WriteError answers with an Error.
func WriteError(w http.ResponseWriter, e Error) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	WriteJSON(w, e.Status, PromptError(e.Kind, e.Message, e.Details))
}

// PromptError is the body of a refused prompt.
func PromptError(kind, message, details string) []byte {
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

// writeUnavailable answers while Redis cannot be reached: the listing or the queue
// would not be complete, and a shorter one would be a lie.
func writeUnavailable(w http.ResponseWriter) {
	WriteError(w, Error{
		Status: http.StatusServiceUnavailable, Kind: "queue_unavailable",
		Message: "The hub's queue cannot be reached right now",
		Details: "Nothing was lost. Try again in a few seconds.", RetryAfter: 2,
	})
}

// writeNoKeys answers while the storage has not given the hub its keys yet.
func writeNoKeys(w http.ResponseWriter) {
	WriteError(w, Error{
		Status: http.StatusServiceUnavailable, Kind: "keys_unavailable",
		Message: "The hub cannot read its keys right now",
		Details: "They protect API keys and links. Try again in a few seconds.", RetryAfter: 5,
	})
}

// WriteNoInstance answers a call that needs an instance while none is there.
func WriteNoInstance(w http.ResponseWriter) {
	WriteError(w, Error{
		Status: http.StatusBadGateway, Kind: "no_instance",
		Message: "No ComfyUI instance is connected to the hub",
		Details: "This call is answered by an instance, and none can be reached.", RetryAfter: 5,
	})
}

// WriteErrorText is an error in the shape of the newer routes.
func WriteErrorText(w http.ResponseWriter, status int, text string) {
	WriteJSON(w, status, pyjson.Marshal(pyjson.NewObject(pyjson.Member{Key: "error", Value: pyjson.String(text)})))
}

// CopyAnswer passes an instance's answer on. Its headers are only those that
// may pass, see package comfyui.
func CopyAnswer(w http.ResponseWriter, resp *http.Response) {
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // the visitor may be gone
}
