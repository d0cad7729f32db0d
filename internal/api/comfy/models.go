package comfy

import (
	"net/http"
	"net/url"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// getModelFolders answers GET /experiment/models: the model folders of the
// fleet with the places and file types of all instances.
func (s surveys) getModelFolders(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
	answers, reached := s.askAll(r.Context(), "/experiment/models", nil)
	if len(answers) == 0 {
		s.writeUnlisted(w, r, reached)
		return
	}
	s.writeListing(w, r, mergeNamed(answers, func(into, from *pyjson.Object) {
		for _, key := range []string{"folders", "extensions"} {
			if from.Has(key) {
				into.Set(key, union(into.Array(key), from.Array(key)))
			}
		}
	}))
}

// getModelFolder answers GET /experiment/models/{folder}: the models that any
// instance has.
func (s surveys) getModelFolder(w http.ResponseWriter, r *http.Request, _ api.Requester, path []string) {
	answers, reached := s.askAll(r.Context(), "/experiment/models/"+url.PathEscape(path[0]), nil)
	if len(answers) == 0 {
		s.writeUnlisted(w, r, reached)
		return
	}
	s.writeListing(w, r, mergeNamed(answers, func(_, _ *pyjson.Object) {}))
}

// getUnion answers a listing with the union over the fleet: a model that any
// instance has can be used.
func (s surveys) getUnion(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
	answers, reached := s.askAll(r.Context(), api.PathOf(r).Bare().Escaped(), api.ForwardedQuery(r))
	if len(answers) == 0 {
		s.writeUnlisted(w, r, reached)
		return
	}
	var all []pyjson.Array
	for _, answer := range answers {
		list, _ := answer.(pyjson.Array)
		all = append(all, list)
	}
	s.writeListing(w, r, union(all...))
}

// writeListing answers with the union of the fleet's lists, and keeps it.
func (s surveys) writeListing(w http.ResponseWriter, r *http.Request, list pyjson.Array) {
	body := pyjson.Marshal(list)
	s.hub().LastKnown.Keep(knownPath(r), body, "[]", "", nil)
	api.WriteJSON(w, http.StatusOK, body)
}

// writeUnlisted answers for a listing that no instance has: with 404, as ComfyUI
// does for an unknown folder, or with the last known one while no instance can
// be asked.
func (s surveys) writeUnlisted(w http.ResponseWriter, r *http.Request, reached bool) {
	if reached {
		api.WriteEmpty(w, http.StatusNotFound)
		return
	}
	s.writeKnown(w, r, "[]", madeHere)
}

// getFromAny answers what only an instance that has a file can tell: the first
// that does not say 404 answers.
func (s surveys) getFromAny(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
	for _, client := range s.hub().Instances.Clients() {
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
	s.writeNowhere(w)
}

// writeNowhere is ComfyUI's answer for a file or folder that nobody has.
func (s surveys) writeNowhere(w http.ResponseWriter) {
	if len(s.hub().Instances.Clients()) == 0 {
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
