package comfy

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/logs"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// instanceLogs answers the routes of the instances' logs.
type instanceLogs struct{ shared }

// getLogs answers GET /internal/logs and /internal/logs/raw: the log of the only
// instance as it is, or the lines of all with their names. Where users log in it
// is empty, also for those who do not: an instance's log shows everybody's
// prompts.
func (l instanceLogs) getLogs(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	raw := api.PathOf(r).String() == "/internal/logs/raw"
	instances := l.hub().Fleet.Instances()
	switch whole := l.hub().Insight.SeesAll(a.Viewer()); {
	case whole && len(instances) == 1:
		if client := l.hub().Instances.ClientOf(instances[0].Name); client != nil {
			client.Forward(w, r, api.PathOf(r), nil, func(w http.ResponseWriter, r *http.Request, _ error) {
				if r.Context().Err() == nil {
					api.WriteNoInstance(w)
				}
			})
			return
		}
		writeLogs(w, raw, nil, nil)
	case whole:
		entries, size := l.allLogs(r.Context(), instances)
		writeLogs(w, raw, logs.Join(entries), size)
	default:
		writeLogs(w, raw, nil, nil)
	}
}

// allLogs asks all instances for their logs; size is that of the first one's
// terminal.
func (l instanceLogs) allLogs(ctx context.Context, instances []fleet.Instance) (entries map[string]pyjson.Array, size pyjson.Value) {
	ctx, cancel := context.WithTimeout(ctx, api.AskAllTimeout)
	defer cancel()
	answers := make([]*pyjson.Object, len(instances))
	var wait sync.WaitGroup
	for n, i := range instances {
		if client := l.hub().Instances.ClientOf(i.Name); client != nil {
			wait.Go(func() {
				answer, _ := api.Ask(ctx, client, "/internal/logs/raw", nil)
				answers[n], _ = answer.(*pyjson.Object)
			})
		}
	}
	wait.Wait()
	entries = map[string]pyjson.Array{}
	for n, answer := range answers {
		if answer != nil {
			entries[instances[n].Name] = answer.Array("entries")
			if first := answer.Object("size"); size == nil && first != nil {
				size = first
			}
		}
	}
	return entries, size
}

// writeLogs answers with lines in the form of either route.
func writeLogs(w http.ResponseWriter, raw bool, lines []logs.Line, size pyjson.Value) {
	if !raw {
		var text strings.Builder
		for _, l := range lines {
			text.WriteString(l.Time + " - " + l.Text)
		}
		api.WriteValue(w, pyjson.String(text.String()))
		return
	}
	entries := pyjson.Array{}
	for _, l := range lines {
		entries = append(entries, logs.Entry(l.Time, l.Text))
	}
	if size == nil {
		size = pyjson.NewObject(pyjson.Member{Key: "cols", Value: pyjson.Int(80)}, pyjson.Member{Key: "rows", Value: pyjson.Int(24)})
	}
	api.WriteValue(w, pyjson.NewObject(pyjson.Member{Key: "entries", Value: entries}, pyjson.Member{Key: "size", Value: size}))
}

// patchLogs answers PATCH /internal/logs/subscribe.
func (l instanceLogs) patchLogs(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, done, ok := l.ReadJSON(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer done()
	o, _ := v.(*pyjson.Object)
	enabled, said := o.Get("enabled")
	if !said {
		api.WriteInternalError(w, r) // a KeyError in ComfyUI
		return
	}
	if client := o.String("clientId"); client != "" {
		l.hub().Logs.Read(r.Context(), a.Viewer(), client, python.Bool(enabled))
	}
	api.WriteEmpty(w, http.StatusOK)
}
