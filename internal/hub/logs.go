package hub

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// maxLogReaders bounds the clients that read an instance's log at once.
const maxLogReaders = 1000

// logReaders are the clients that want the instances' log lines as they come.
// Each instance is subscribed once, with the hub's own socket.
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

// getLogs answers GET /internal/logs and /internal/logs/raw: the only
// instance's as it is, of several all lines with their names. Where users log
// in they are empty, also for those who do not: an instance's log tells of
// everybody's prompts.
func (h *Hub) getLogs(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	raw := api.PathOf(r).String() == "/internal/logs/raw"
	instances := h.fleet.Instances()
	switch whole := h.seesAll(viewerOf(a)); {
	case whole && len(instances) == 1:
		if client := h.dispatch.Primary(); client != nil {
			client.Forward(w, r, api.PathOf(r), nil, func(w http.ResponseWriter, r *http.Request, _ error) {
				if r.Context().Err() == nil {
					api.WriteNoInstance(w)
				}
			})
			return
		}
		writeLogs(w, raw, nil, nil)
	case whole:
		logs, size := h.allLogs(r.Context(), instances)
		writeLogs(w, raw, joinLogs(logs), size)
	default:
		writeLogs(w, raw, nil, nil)
	}
}

// allLogs asks all instances for their logs; size is of the first one's
// terminal.
func (h *Hub) allLogs(ctx context.Context, instances []fleet.Instance) (logs map[string]pyjson.Array, size pyjson.Value) {
	ctx, cancel := context.WithTimeout(ctx, askAllTimeout)
	defer cancel()
	answers := make([]*pyjson.Object, len(instances))
	var wait sync.WaitGroup
	for n, i := range instances {
		if client := h.clients.ByName(i.Name); client != nil {
			wait.Go(func() {
				answer, _ := ask(ctx, client, "/internal/logs/raw", nil)
				answers[n], _ = answer.(*pyjson.Object)
			})
		}
	}
	wait.Wait()
	logs = map[string]pyjson.Array{}
	for n, answer := range answers {
		if answer != nil {
			logs[instances[n].Name] = answer.Array("entries")
			if first := answer.Object("size"); size == nil && first != nil {
				size = first
			}
		}
	}
	return logs, size
}

// writeLogs answers with lines in the form of either route.
func writeLogs(w http.ResponseWriter, raw bool, lines []logText, size pyjson.Value) {
	if !raw {
		var text strings.Builder
		for _, l := range lines {
			text.WriteString(l.time + " - " + l.text)
		}
		api.WriteValue(w, pyjson.String(text.String()))
		return
	}
	entries := pyjson.Array{}
	for _, l := range lines {
		entries = append(entries, logEntry(l.time, l.text))
	}
	if size == nil {
		size = pyjson.NewObject(pyjson.Member{Key: "cols", Value: pyjson.Int(80)}, pyjson.Member{Key: "rows", Value: pyjson.Int(24)})
	}
	api.WriteValue(w, pyjson.NewObject(pyjson.Member{Key: "entries", Value: entries}, pyjson.Member{Key: "size", Value: size}))
}

// patchLogs answers PATCH /internal/logs/subscribe.
func (h *Hub) patchLogs(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, done, ok := h.requests.ReadJSON(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer done()
	o, _ := v.(*pyjson.Object)
	enabled, said := o.Get("enabled")
	if client := o.String("clientId"); client != "" && said && h.seesAll(viewerOf(a)) {
		h.followLogs(r.Context(), h.readers.set(stream.Key{Tenant: a.Tenant, Client: client}, python.Bool(enabled), h.streams.Connected))
	} else if !said {
		api.WriteInternalError(w, r) // a KeyError in ComfyUI
		return
	}
	api.WriteEmpty(w, http.StatusOK)
}

// followLogs subscribes the hub to the logs of all instances, or ends that.
func (h *Hub) followLogs(ctx context.Context, wanted bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := h.dispatch.SubscribeLogs(ctx, wanted); err != nil {
		h.log().Debug("cannot subscribe to an instance's log", "error", err)
	}
}

// logged passes log lines of an instance on to the clients that read them.
func (h *Hub) logged(instance string, frame []byte) {
	if h.logins.lately() {
		return // they asked for it before anybody had logged in
	}
	readers := h.readers.all()
	if len(readers) == 0 {
		return
	}
	if len(h.fleet.Instances()) > 1 {
		if frame = h.lines.message(instance, frame); frame == nil {
			return
		}
	}
	for _, k := range readers {
		h.streams.Broadcast(k, stream.Text(frame))
	}
}
