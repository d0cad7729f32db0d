package api

import (
	"net/http"
	"strings"
)

// Files of users, answers of machines and results of workers come from the address of the
// web UI and of the dashboard. A browser that ran one of them as a page would run it with
// the login of whoever looks. So every answer is content, which a browser shows and never
// runs, unless its handler has said of it that it is a page: see [AsPage].

// contentPolicy is what a browser that opens content may do: draw it. The sandbox gives it an
// origin of its own, so that nothing in it can speak for its reader, and no scripts; nothing
// else is loaded. Styles are what pictures and the browser's own viewers are drawn with.
const contentPolicy = "sandbox; default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'"

// mediaPolicy is that of films and sounds. The browser's player is a page that loads the file
// once more, from the address that it came from: it must stay of that origin, without scripts
// all the same.
const mediaPolicy = "sandbox allow-same-origin; default-src 'none'; media-src 'self'; style-src 'unsafe-inline'"

// content is the writer of every answer.
type content struct {
	LateWriter
	page bool
}

// asContent makes an answer content.
func asContent(w http.ResponseWriter) http.ResponseWriter {
	c := &content{}
	c.ResponseWriter, c.Late = w, func(header http.Header, status int) {
		if !c.page {
			confine(header, status)
		}
	}
	return c
}

// AsPage says that an answer is a page of the hub's own or of the web UI, or a script or
// another part of one, which browsers run with the rights of its address. It must be
// called before the first byte, and never for what a user, a custom node or a worker made.
func AsPage(w http.ResponseWriter) {
	for w != nil {
		if c, ok := w.(*content); ok {
			c.page = true
			return
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = inner.Unwrap()
	}
}

// confine sets the headers of content. What is not known to be harmless when it is opened is
// a download; pages that fetch it, or draw it as a picture, take no notice of that.
func confine(header http.Header, status int) {
	// An error without a type has no body, and a page that asks for a style sheet that is not
	// there is to read of a 404, not of a wrong type.
	if status < http.StatusBadRequest || len(header.Values("Content-Type")) > 0 {
		header.Set("X-Content-Type-Options", "nosniff")
	}
	header.Set("Content-Security-Policy", contentPolicy)
	kind := mediaType(header.Values("Content-Type"))
	if isMedia(kind) {
		header.Set("Content-Security-Policy", mediaPolicy)
	}
	if status < 200 || status > 299 || status == http.StatusNoContent || header.Get("Content-Length") == "0" || shownInline(kind) {
		return
	}
	disposition := header.Get("Content-Disposition")
	how, _, _ := strings.Cut(disposition, ";")
	switch how = strings.ToLower(strings.TrimSpace(how)); {
	case how == "attachment":
	case disposition == "":
		header.Set("Content-Disposition", "attachment")
	case how == "inline":
		header.Set("Content-Disposition", "attachment"+strings.TrimSpace(disposition)[len("inline"):])
	default: // ComfyUI says filename="..." only
		header.Set("Content-Disposition", "attachment; "+disposition)
	}
}

// mediaType is the type of an answer without its parameters, "" if it has none, or several of
// which browsers choose for themselves.
func mediaType(types []string) string {
	if len(types) != 1 || strings.Contains(types[0], ",") {
		return ""
	}
	kind, _, _ := strings.Cut(types[0], ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// shownInline reports whether a browser may show content of a type in a tab: only types that
// are known to contain no scripts. SVG and everything else of XML may, and so may PDF and HTML.
func shownInline(kind string) bool {
	switch kind {
	case "text/plain", "application/json", "application/x-ndjson", "text/event-stream":
		return true
	}
	return isMedia(kind) || strings.HasPrefix(kind, "image/") && !ofXML(kind)
}

// isMedia reports whether a browser plays content of a type.
func isMedia(kind string) bool {
	return (strings.HasPrefix(kind, "video/") || strings.HasPrefix(kind, "audio/")) && !ofXML(kind)
}

func ofXML(kind string) bool { return strings.Contains(kind, "xml") || strings.Contains(kind, "svg") }
