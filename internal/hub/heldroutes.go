package hub

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// putHeld answers PUT /api/etn/image/{id} as the nodes do.
func (h *Hub) putHeld(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	if api.Climbs(path[0]) || len(path[0]) > api.MaxName {
		api.WriteErrorText(w, http.StatusBadRequest, "Invalid id")
		return
	}
	if h.held.Has(r.Context(), a.Tenant, path[0]) {
		api.WriteJSON(w, http.StatusOK, []byte(`{"status": "cached"}`))
		return
	}
	limit := h.Settings().MaxUpload
	if r.ContentLength >= limit {
		api.WriteTooLarge(w, limit, r.ContentLength)
		return
	}
	bounded := http.MaxBytesReader(w, r.Body, limit)
	err := h.held.Put(r.Context(), a.Tenant, path[0], bounded)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		api.WriteTooLarge(w, limit, limit)
	case err != nil:
		h.requests.Fail(w, r, err)
	default:
		api.WriteJSON(w, http.StatusCreated, []byte(`{"status": "success"}`))
	}
}

// getHeld answers GET /api/etn/image/{id}: a picture that the client has put,
// or one that a node has left in the memory of the instance that ran it.
func (h *Hub) getHeld(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	body, kind, size, err := h.held.Open(r.Context(), a.Tenant, path[0])
	if err == nil {
		writeHeld(w, body, kind, size)
		return
	}
	if api.Climbs(path[0]) {
		api.WriteErrorText(w, http.StatusNotFound, "Image not found")
		return
	}
	for _, client := range h.holders(a, path[0]) {
		resp, err := client.Ask(r.Context(), files.HeldPath+url.PathEscape(path[0]), nil)
		if err != nil {
			continue
		}
		if resp.StatusCode == http.StatusOK {
			api.CopyAnswer(w, resp)
			return
		}
		resp.Body.Close()
	}
	api.WriteErrorText(w, http.StatusNotFound, "Image not found")
}

// holders are the instances to ask for a picture that a node has left in their
// memory. Where people log in it is the one on which a job of the requester's has
// named that picture, if any: ids can be guessed, and instances are shared.
func (h *Hub) holders(a api.Requester, id string) []*comfyui.Client {
	if !h.insight.SeesAll(viewerOf(a)) {
		var at string
		h.left.Read(a.Tenant, id, func(instance *string) { at = *instance })
		if client := h.clients.ByName(at); client != nil {
			return []*comfyui.Client{client}
		}
		return nil
	}
	clients := h.dispatch.Clients()
	if first := h.ClientFor(a.Tenant, h.recent.Clients(a)); first != nil {
		clients = slices.Insert(slices.DeleteFunc(clients, func(c *comfyui.Client) bool { return c == first }), 0, first)
	}
	return clients
}

// noteLeft notes the pictures that an output tells of: a node has left them in its
// instance's memory.
func (h *Hub) noteLeft(tenant, instance string, output []byte) {
	if !bytes.Contains(output, []byte(`"http"`)) {
		return
	}
	v, err := pyjson.Parse(output)
	if err != nil {
		return
	}
	noted := 0
	eachObject(v, func(o *pyjson.Object) {
		if id := o.String("id"); id != "" && o.String("source") == "http" && noted < maxHeldIDs {
			noted++
			h.left.Change(tenant, id, func(at *string) { *at = instance })
		}
	})
}

// eachObject calls f with every object in a value.
func eachObject(v pyjson.Value, f func(*pyjson.Object)) {
	switch v := v.(type) {
	case *pyjson.Object:
		f(v)
		for _, member := range v.All() {
			eachObject(member, f)
		}
	case pyjson.Array:
		for _, item := range v {
			eachObject(item, f)
		}
	}
}

func writeHeld(w http.ResponseWriter, body io.ReadCloser, kind string, size int64) {
	defer body.Close()
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	_, _ = io.Copy(w, body) // the visitor may be gone
}
