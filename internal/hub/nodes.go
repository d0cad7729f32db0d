package hub

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func (h *Hub) writeDocument(w http.ResponseWriter, r *http.Request, d catalog.Document) {
	w.Header().Set("Etag", d.ETag)
	w.Header().Set("Cache-Control", "no-cache")
	if r.Header.Get("If-None-Match") == d.ETag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	api.WriteJSON(w, http.StatusOK, d.Body())
}

// uploaded are the tenant's files in the input folder, which the widgets of
// file inputs offer beside what lies on the instances.
func (h *Hub) uploaded(ctx context.Context, tenant string) catalog.Uploads {
	var names catalog.Uploads
	for _, folder := range []string{"", "3d"} {
		entries, err := h.store.List(ctx, tenant, job.TypeInput, folder)
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
	flags.Set("max_upload_size", pyjson.Int(h.Settings().MaxUpload))
	if current {
		manager := pyjson.NewObject(pyjson.Member{Key: "supports_v4", Value: pyjson.Bool(true)})
		flags.Set("extension", pyjson.NewObject(pyjson.Member{Key: "manager", Value: manager}))
		flags.Set("node_replacements", pyjson.Bool(true))
		flags.Set("assets", pyjson.Bool(false))
	}
	return pyjson.Marshal(flags)
}

func (h *Hub) getFeatures(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) {
	api.WriteJSON(w, http.StatusOK, h.features())
}

// getSystemStats answers GET /system_stats: the primary instance's system,
// with the version that the whole fleet can keep, and the devices of all.
func (h *Hub) getSystemStats(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
	var system, oldest *pyjson.Object
	devices := pyjson.Array{}
	answers, _ := h.askAll(r.Context(), "/system_stats", nil)
	for _, answer := range answers {
		o, _ := answer.(*pyjson.Object)
		if o == nil {
			continue
		}
		own := o.Object("system")
		if system == nil {
			system = own
		}
		if oldest == nil || versionOf(own).Compare(versionOf(oldest)) < 0 {
			oldest = own
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
	// It belongs to the version: a web UI that fits the oldest server must not
	// be called outdated because another one is newer.
	if v, told := oldest.Get("required_frontend_version"); told && system.Has("required_frontend_version") {
		system.Set("required_frontend_version", v)
	}
	api.WriteValue(w, pyjson.NewObject(
		pyjson.Member{Key: "system", Value: system},
		pyjson.Member{Key: "devices", Value: devices},
	))
}

// versionOf is the version that a server tells in its system.
func versionOf(system *pyjson.Object) comfyui.Version {
	return comfyui.ParseVersion(system.String("comfyui_version"))
}

// getUnion answers a listing with the union over the fleet: a model that any
// instance has can be used.
func (h *Hub) getUnion(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
	answers, reached := h.askAll(r.Context(), api.PathOf(r).Bare().Escaped(), api.ForwardedQuery(r))
	if len(answers) == 0 {
		h.writeUnlisted(w, r, reached)
		return
	}
	var all []pyjson.Array
	for _, answer := range answers {
		list, _ := answer.(pyjson.Array)
		all = append(all, list)
	}
	h.writeListing(w, r, union(all...))
}

// askAllTimeout bounds a question to the whole fleet: one instance that hangs
// must not hang every client.
const askAllTimeout = 5 * time.Second

// askAll asks every connected instance at once and returns the good answers,
// the primary's first. reached says that an instance has answered, be it that
// it has nothing there.
func (h *Hub) askAll(ctx context.Context, path string, query url.Values) (good []pyjson.Value, reached bool) {
	ctx, cancel := context.WithTimeout(ctx, askAllTimeout)
	defer cancel()
	clients := h.dispatch.Clients()
	answers := make([]pyjson.Value, len(clients))
	spoke := make([]bool, len(clients))
	var wait sync.WaitGroup
	for n, client := range clients {
		wait.Go(func() { answers[n], spoke[n] = ask(ctx, client, path, query) })
	}
	wait.Wait()
	for _, a := range answers {
		if a != nil {
			good = append(good, a)
		}
	}
	return good, slices.Contains(spoke, true)
}

// ask asks one instance; spoke says that it has answered, be it 404.
func ask(ctx context.Context, client *comfyui.Client, path string, query url.Values) (v pyjson.Value, spoke bool) {
	body, err := client.Get(ctx, path, query)
	if status := (*comfyui.StatusError)(nil); errors.As(err, &status) {
		return nil, status.Status < http.StatusInternalServerError
	}
	if err != nil {
		return nil, false
	}
	if v, err = pyjson.Parse(body); err != nil {
		return nil, true
	}
	return v, true
}

// api.WriteListing answers with a list that is united over the fleet, and keeps it.
func (h *Hub) writeListing(w http.ResponseWriter, r *http.Request, list pyjson.Array) {
	body := pyjson.Marshal(list)
	h.known.keep(knownPath(r), body, "[]", nil)
	api.WriteJSON(w, http.StatusOK, body)
}

// writeUnlisted answers for a listing that no instance has: 404, as ComfyUI
// does of an unknown folder, or, while none can be asked, what was known last.
func (h *Hub) writeUnlisted(w http.ResponseWriter, r *http.Request, reached bool) {
	if reached {
		api.WriteEmpty(w, http.StatusNotFound)
		return
	}
	h.writeKnown(w, r, "[]")
}
