package hub

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// maxLogReaders bounds the clients that read an instance's log at once.
const maxLogReaders = 1000

// logReaders are the clients that want the primary's log lines as they come.
// The instance is subscribed once, with the hub's own socket.
type logReaders struct {
	mu   sync.Mutex
	keys []stream.Key
}

// set adds or removes a reader and reports whether any is left. When there is no
// room, those go that have no socket; a reader that has one is never pushed out
// by a newer one.
func (l *logReaders) set(k stream.Key, wanted bool, connected func(stream.Key) bool) (left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys = slices.DeleteFunc(l.keys, func(other stream.Key) bool { return other == k })
	if wanted && len(l.keys) >= maxLogReaders {
		l.keys = slices.DeleteFunc(l.keys, func(other stream.Key) bool { return !connected(other) })
	}
	if wanted && len(l.keys) < maxLogReaders {
		l.keys = append(l.keys, k)
	}
	return len(l.keys) > 0
}

func (l *logReaders) all() []stream.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.keys)
}

// getLogs answers GET /internal/logs and /internal/logs/raw with those of the
// primary. Where users log in they are empty, also for those who do not: an
// instance's log tells of everybody's prompts.
func (h *Hub) getLogs(w http.ResponseWriter, r *http.Request, a asker, _ []string) {
	switch {
	case h.insightOf(a).whole:
		h.getFromPrimary(w, r, a, nil)
	case pathOf(r).String() == "/internal/logs":
		writeValue(w, pyjson.String(""))
	default:
		writeJSON(w, http.StatusOK, []byte(`{"entries": [], "size": {"cols": 80, "rows": 24}}`))
	}
}

// patchLogs answers PATCH /internal/logs/subscribe.
func (h *Hub) patchLogs(w http.ResponseWriter, r *http.Request, a asker, _ []string) {
	v, done, ok := h.readJSON(w, r, a, smallBody)
	if !ok {
		return
	}
	defer done()
	o, _ := v.(*pyjson.Object)
	enabled, said := o.Get("enabled")
	if client := o.String("clientId"); client != "" && said && h.insightOf(a).whole {
		h.followLogs(r.Context(), h.readers.set(stream.Key{Tenant: a.tenant, Client: client}, truthy(enabled), h.streams.Connected))
	} else if !said {
		writeTrouble(w, r) // a KeyError in ComfyUI
		return
	}
	writeEmpty(w, http.StatusOK)
}

// followLogs subscribes the hub to the primary's log, or ends that.
func (h *Hub) followLogs(ctx context.Context, wanted bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := h.dispatch.SubscribeLogs(ctx, wanted); err != nil {
		h.log().Debug("cannot subscribe to an instance's log", "error", err)
	}
}

// logged passes log lines of an instance on to the clients that read them.
func (h *Hub) logged(frame []byte) {
	if h.logins.lately() {
		return // they asked for it before anybody had logged in
	}
	for _, k := range h.readers.all() {
		h.streams.Broadcast(k, stream.Text(frame))
	}
}
