package hub

import (
	"net/http"
	"path"
	"slices"
	"strings"
)

// getFromPrimary lets the primary instance answer: what its web interface is
// made of, and what must come from one build.
func (h *Hub) getFromPrimary(w http.ResponseWriter, r *http.Request, _ asker, _ []string) {
	client := h.dispatch.Primary()
	if client == nil {
		writeNoInstance(w)
		return
	}
	h.passOn(client, w, r)
}

// getFromPrimaryOr is getFromPrimary for routes that old versions of ComfyUI do
// not have. The web interface may be newer than the instances and takes a 404
// for a fault: it is told what a server says that has nothing there.
func (h *Hub) getFromPrimaryOr(nothing string) handler {
	return func(w http.ResponseWriter, r *http.Request, _ asker, _ []string) {
		client := h.dispatch.Primary()
		if client == nil {
			writeNoInstance(w)
			return
		}
		resp, err := client.Ask(r.Context(), bare(r.URL.EscapedPath()), r.URL.Query())
		switch {
		case err != nil:
			h.log().Debug("an instance did not answer", "error", err)
			writeNoInstance(w)
		case resp.StatusCode == http.StatusNotFound:
			_ = resp.Body.Close()
			writeJSON(w, http.StatusOK, []byte(nothing))
		default:
			copyAnswer(w, resp)
		}
	}
}

// isPage reports whether a path is a part of the web interface rather than a
// call: pages, scripts and pictures. Their names carry hashes of one build, so
// they may never be spread over instances.
func isPage(r *http.Request) bool {
	if !isRead(r) || strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	p := r.URL.Path
	if p == "/" || p == "/api/" {
		return true
	}
	first, _, deep := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	if deep && slices.Contains([]string{"extensions", "assets", "templates", "docs", "scripts", "fonts", "cursor"}, first) {
		return true
	}
	return first != "api" && slices.Contains([]string{
		".html", ".js", ".mjs", ".css", ".map", ".json", ".ico", ".svg", ".png", ".webp", ".woff", ".woff2", ".ttf",
	}, path.Ext(p))
}

// refusedPath answers paths that ComfyUI's static route refuses, and reports
// whether it did. They go no further: an instance's address may have a path of
// its own, which ".." would leave.
func refusedPath(w http.ResponseWriter, r *http.Request) bool {
	p := r.URL.Path
	switch {
	case !climbs(p) && !strings.HasPrefix(p, "//"):
		return false
	case !isRead(r):
		writeNotAllowed(w, allowHeader(nil))
	case climbs(p):
		writeText(w, http.StatusNotFound, "404: Not Found")
	default:
		writeText(w, http.StatusForbidden, "403: Forbidden")
	}
	return true
}

func climbs(p string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(p, func(r rune) bool { return r == '/' || r == '\\' }), func(s string) bool { return s == ".." })
}
