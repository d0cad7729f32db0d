package hub

import (
	"net/http"
	"net/url"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// getModelFolders answers GET /experiment/models: the model folders of the
// fleet with the places and file types of all instances.
func (h *Hub) getModelFolders(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
	answers, reached := h.askAll(r.Context(), "/experiment/models", nil)
	if len(answers) == 0 {
		h.writeUnlisted(w, r, reached)
		return
	}
	h.writeListing(w, r, mergeNamed(answers, func(into, from *pyjson.Object) {
		for _, key := range []string{"folders", "extensions"} {
			if from.Has(key) {
				into.Set(key, union(into.Array(key), from.Array(key)))
			}
		}
	}))
}

// getModelFolder answers GET /experiment/models/{folder}: the models that any
// instance has.
func (h *Hub) getModelFolder(w http.ResponseWriter, r *http.Request, _ api.Requester, path []string) {
	answers, reached := h.askAll(r.Context(), "/experiment/models/"+url.PathEscape(path[0]), nil)
	if len(answers) == 0 {
		h.writeUnlisted(w, r, reached)
		return
	}
	h.writeListing(w, r, mergeNamed(answers, func(_, _ *pyjson.Object) {}))
}

// getFromAny answers what only an instance that has a file can tell: the first
// that does not say 404 answers.
func (h *Hub) getFromAny(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
	for _, client := range h.dispatch.Clients() {
		resp, err := client.Ask(r.Context(), api.PathOf(r).Bare().Escaped(), api.ForwardedQuery(r))
		if err != nil {
			continue // another may have it
		}
		if resp.StatusCode != http.StatusNotFound {
			api.CopyAnswer(w, resp)
			return
		}
		resp.Body.Close()
	}
	h.writeNowhere(w)
}

// writeNowhere is ComfyUI's answer for a file or folder that nobody has.
func (h *Hub) writeNowhere(w http.ResponseWriter) {
	if h.dispatch.Primary() == nil {
		api.WriteNoInstance(w)
		return
	}
	api.WriteEmpty(w, http.StatusNotFound)
}

// mergeNamed makes one list of lists of objects with a name; merge joins those
// of one name, the earlier instance's first.
func mergeNamed(lists []pyjson.Value, merge func(into, from *pyjson.Object)) pyjson.Array {
	known := map[string]*pyjson.Object{}
	out := pyjson.Array{}
	for _, list := range lists {
		items, _ := list.(pyjson.Array)
		for _, item := range items {
			o, ok := item.(*pyjson.Object)
			if !ok {
				continue
			}
			if first := known[o.String("name")]; first != nil {
				merge(first, o)
				continue
			}
			known[o.String("name")] = o
			out = append(out, o)
		}
	}
	return out
}

// union joins lists without repeating what is equal.
func union(lists ...pyjson.Array) pyjson.Array {
	seen := map[string]bool{}
	out := pyjson.Array{}
	for _, list := range lists {
		for _, v := range list {
			if key := string(pyjson.Marshal(v)); !seen[key] {
				seen[key] = true
				out = append(out, v)
			}
		}
	}
	return out
}
