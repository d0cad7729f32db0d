package comfy

import (
	"bytes"
	"io"
	"net/http"
	"slices"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/lastknown"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

// writeKnown answers a call that no instance answers with the last answer that is known and
// whose owner counts, else with empty, which has the shape that the web UI reads.
func (s surveys) writeKnown(w http.ResponseWriter, r *http.Request, empty string, counts func(owner string) bool) {
	body, ok := s.hub().LastKnown.Last(r.Context(), knownPath(r), counts)
	if !ok {
		body = []byte(empty)
	}
	w.Header().Set("Cache-Control", "no-cache")
	api.WriteJSON(w, http.StatusOK, body)
}

// isKnown reports whether there is a last answer to a call, for writeKnown.
func (s surveys) isKnown(r *http.Request, counts func(owner string) bool) bool {
	return s.hub().LastKnown.Has(r.Context(), knownPath(r), counts)
}

// merged asks for an answer that the hub makes of those of many instances.
func (s surveys) merged(ask api.Handler) api.Handler { return s.whenUp(madeHere, ask) }

// told is getKnown for a list that is empty for as long as no instance is there.
func (s surveys) told(empty string) api.Handler {
	// Asked at each call: routes are made before the hub has its parts.
	mayTell := func(owner string) bool { return s.hub().Instances.MayTellPage(owner) }
	return s.whenUp(mayTell, s.getKnown(empty))
}

// whenUp answers a call as soon as there is an instance to ask, if one is on its way and there
// is no last answer that counts: an empty list would be taken for the truth.
func (s surveys) whenUp(counts func(owner string) bool, ask api.Handler) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, a api.Requester, values []string) {
		if len(s.hub().Instances.Clients()) == 0 && !s.isKnown(r, counts) {
			if err := s.hub().Classes.AwaitServer(r.Context(), a.Share()); err != nil {
				s.Fail(w, r, err)
				return
			}
		}
		ask(w, r, a, values)
	}
}

// knownPath is the name under which an answer is kept. These routes read no
// query.
func knownPath(r *http.Request) string { return api.PathOf(r).Bare().Escaped() }

// madeHere is the owner of answers that the hub has made of those of many instances.
func madeHere(owner string) bool { return owner == "" }

// getKnown lets the primary instance answer a call of the web UI, else the next one that the
// page may come from: what it answers names scripts for the page to run, and texts that it
// shows. If none can, the answer is the last one that is known. empty is the answer of a
// server that has nothing there. It stands in for a ComfyUI that is too old to have the route
// (404), since the web UI may be newer.
func (s surveys) getKnown(empty string) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
		for _, source := range s.hub().Instances.PageSources() {
			resp, err := source.Client.Ask(r.Context(), knownPath(r), api.ForwardedQuery(r))
			if err != nil {
				if r.Context().Err() != nil {
					return // the visitor has gone
				}
				s.Log().Debug("an instance did not answer", "error", err)
				continue
			}
			if resp.StatusCode == http.StatusNotFound {
				resp.Body.Close()
				api.WriteJSON(w, http.StatusOK, []byte(empty))
				return
			}
			if s.copyKnown(w, r, resp, empty, source) {
				return
			}
		}
		s.writeKnown(w, r, empty, s.hub().Instances.MayTellPage)
	}
}

// getSettled is getKnown for what an instance reads once and then keeps, as
// ComfyUI does with subgraphs: the web UI fetches some hundred of them, one by
// one, whenever it loads.
func (s surveys) getSettled(empty string) api.Handler {
	ask := s.getKnown(empty)
	return func(w http.ResponseWriter, r *http.Request, a api.Requester, values []string) {
		if primary := s.hub().Instances.Primary(); primary != nil {
			if body, ok := s.hub().LastKnown.Settled(knownPath(r), primary); ok {
				api.WriteJSON(w, http.StatusOK, body)
				return
			}
		}
		ask(w, r, a, values)
	}
}

// copyKnown passes an answer on and keeps it; false if it ended in the middle,
// and nothing of it was passed on.
func (s surveys) copyKnown(w http.ResponseWriter, r *http.Request, resp *http.Response, empty string, by origin.Source) bool {
	if resp.StatusCode != http.StatusOK || resp.ContentLength > lastknown.MaxBody || resp.Header.Get("Content-Encoding") != "" {
		api.CopyAnswer(w, resp)
		return true
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, lastknown.MaxBody))
	if err != nil {
		resp.Body.Close()
		return false
	}
	if len(body) == lastknown.MaxBody {
		// There may be more, which is passed on as it comes.
		resp.Body = &joined{Reader: io.MultiReader(bytes.NewReader(body), resp.Body), Closer: resp.Body}
	} else {
		s.hub().LastKnown.Keep(knownPath(r), slices.Clip(body), empty, by.Owner, by.Client)
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	api.CopyAnswer(w, resp)
	return true
}

// joined reads from one and closes another.
type joined struct {
	io.Reader
	io.Closer
}
