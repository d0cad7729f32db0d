package hub

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// getObjectInfo answers GET /object_info: all node classes of the fleet.
func (h *Hub) getObjectInfo(w http.ResponseWriter, r *http.Request, a asker, _ []string) {
	h.writeDocument(w, r, h.catalog().ObjectInfo(h.uploaded(r.Context(), a.tenant)))
}

// getObjectInfoOf answers GET /object_info/{class}: {} for unknown ones.
func (h *Hub) getObjectInfoOf(w http.ResponseWriter, r *http.Request, a asker, path []string) {
	h.writeDocument(w, r, h.catalog().Class(path[0], h.uploaded(r.Context(), a.tenant)))
}

func (h *Hub) writeDocument(w http.ResponseWriter, r *http.Request, d catalog.Document) {
	w.Header().Set("Etag", d.ETag)
	w.Header().Set("Cache-Control", "no-cache")
	if r.Header.Get("If-None-Match") == d.ETag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeJSON(w, http.StatusOK, d.Body())
}

// uploaded are the tenant's files in the input folder, which the widgets of
// file inputs offer beside what lies on the instances.
func (h *Hub) uploaded(ctx context.Context, tenant string) catalog.Uploads {
	var names catalog.Uploads
	for _, folder := range []string{"", "3d"} {
		entries, err := h.store.List(ctx, tenant, files.TypeInput, folder)
		if err != nil {
			return nil // the listing is still useful without them
		}
		for _, e := range entries {
			names = append(names, e.Ref.Value(false))
		}
	}
	return names
}

// features are the server's feature flags, for GET /features and sockets: what
// a server of the fleet's version announces, as far as the hub keeps it.
func (h *Hub) features() []byte {
	flags := pyjson.NewObject(pyjson.Member{Key: "supports_preview_metadata", Value: pyjson.Bool(true)})
	current := h.dispatch.Version().AtLeast(0, 17, 0)
	if current {
		flags.Set("supports_model_type_tags", pyjson.Bool(true))
	}
	flags.Set("max_upload_size", pyjson.Int(h.settings().MaxUpload))
	if current {
		manager := pyjson.NewObject(pyjson.Member{Key: "supports_v4", Value: pyjson.Bool(true)})
		flags.Set("extension", pyjson.NewObject(pyjson.Member{Key: "manager", Value: manager}))
		flags.Set("node_replacements", pyjson.Bool(true))
		flags.Set("assets", pyjson.Bool(false))
	}
	return pyjson.Marshal(flags)
}

func (h *Hub) getFeatures(w http.ResponseWriter, _ *http.Request, _ asker, _ []string) {
	writeJSON(w, http.StatusOK, h.features())
}

// getSystemStats answers GET /system_stats: the primary instance's system,
// with the version that the whole fleet can keep, and the devices of all.
func (h *Hub) getSystemStats(w http.ResponseWriter, r *http.Request, _ asker, _ []string) {
	var system *pyjson.Object
	devices := pyjson.Array{}
	for _, answer := range h.askAll(r.Context(), "/system_stats", nil) {
		o, _ := answer.(*pyjson.Object)
		if o == nil {
			continue
		}
		if system == nil {
			system = o.Object("system")
		}
		devices = append(devices, o.Array("devices")...)
	}
	if system == nil {
		system = pyjson.NewObject(
			pyjson.Member{Key: "os", Value: pyjson.String("posix")},
			pyjson.Member{Key: "ram_total", Value: pyjson.Int(0)},
			pyjson.Member{Key: "ram_free", Value: pyjson.Int(0)},
			pyjson.Member{Key: "comfyui_version", Value: pyjson.Null{}},
			pyjson.Member{Key: "python_version", Value: pyjson.String("")},
			pyjson.Member{Key: "pytorch_version", Value: pyjson.String("")},
			pyjson.Member{Key: "embedded_python", Value: pyjson.Bool(false)},
			pyjson.Member{Key: "argv", Value: pyjson.Array{}},
		)
	}
	if version := h.dispatch.Version(); version.Known() {
		system.Set("comfyui_version", pyjson.String(version.String()))
	}
	writeValue(w, pyjson.NewObject(
		pyjson.Member{Key: "system", Value: system},
		pyjson.Member{Key: "devices", Value: devices},
	))
}

// getUnion answers a listing with the union over the fleet: a model that any
// instance has can be used.
func (h *Hub) getUnion(w http.ResponseWriter, r *http.Request, _ asker, _ []string) {
	answers := h.askAll(r.Context(), pathOf(r).Bare().Escaped(), forwardedQuery(r))
	if len(answers) == 0 {
		if h.dispatch.Primary() == nil {
			writeNoInstance(w)
			return
		}
		writeEmpty(w, http.StatusNotFound) // an unknown folder
		return
	}
	var all []pyjson.Array
	for _, answer := range answers {
		list, _ := answer.(pyjson.Array)
		all = append(all, list)
	}
	writeValue(w, union(all...))
}

// askAllTimeout bounds a question to the whole fleet: one instance that hangs
// must not hang every client.
const askAllTimeout = 5 * time.Second

// askAll asks every connected instance at once and returns the good answers,
// the primary's first.
func (h *Hub) askAll(ctx context.Context, path string, query url.Values) []pyjson.Value {
	ctx, cancel := context.WithTimeout(ctx, askAllTimeout)
	defer cancel()
	clients := h.dispatch.Clients()
	answers := make([]pyjson.Value, len(clients))
	var wait sync.WaitGroup
	for n, client := range clients {
		wait.Go(func() { answers[n] = ask(ctx, client, path, query) })
	}
	wait.Wait()
	good := answers[:0]
	for _, a := range answers {
		if a != nil {
			good = append(good, a)
		}
	}
	return good
}

func ask(ctx context.Context, client *comfyui.Client, path string, query url.Values) pyjson.Value {
	body, err := client.Get(ctx, path, query)
	if err != nil {
		return nil
	}
	v, err := pyjson.Parse(body)
	if err != nil {
		return nil
	}
	return v
}
