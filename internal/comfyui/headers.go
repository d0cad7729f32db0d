package comfyui

import (
	"maps"
	"net/http"
	"strings"
)

// What passes between a client of the hub and an instance, in both directions.
// Lists of what may pass, because nobody can list what may not: a login, a
// cookie, a forwarded address and a proxy's orders go by many names, and new
// ones turn up.

// toInstance are the request headers that an instance, its web interface and
// custom nodes act on. Above all missing are those that say who the user is
// and where the request comes from (Authorization, X-API-Key, Cookie, Forwarded,
// X-Forwarded-*, Origin, Referer, Comfy-User), and the browser's User-Agent:
// the hub sends its own.
var toInstance = [...]string{
	"Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Comfy-Usage-Source", "Content-Disposition", "Content-Encoding",
	"Content-Language", "Content-Length", "Content-Range", "Content-Type", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range",
	"If-Unmodified-Since", "Last-Event-Id", "Pragma", "Range",
	"Sec-Fetch-Dest", // /view and pages look at it
	"X-Requested-With",
}

// toClient are the response headers that say what an answer is. Above all
// missing are those by which one instance could change what the browser does
// with everything else at the hub's address (Set-Cookie, Clear-Site-Data,
// Strict-Transport-Security, Service-Worker-Allowed, Access-Control-*,
// Alt-Svc, Refresh), and orders to a proxy in front (X-Accel-Redirect,
// X-Sendfile).
var toClient = [...]string{
	"Accept-Ranges", "Age", "Allow", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length",
	"Content-Range", "Content-Security-Policy", "Content-Type", "Cross-Origin-Embedder-Policy", "Cross-Origin-Opener-Policy",
	"Cross-Origin-Resource-Policy", "Date", "Etag", "Expires", "Last-Modified", "Location", "Pragma", "Referrer-Policy", "Retry-After",
	"Vary", "X-Content-Type-Options", "X-Frame-Options",
}

// upgradeHeaders are those of a WebSocket's handshake, in either direction.
var upgradeHeaders = [...]string{
	"Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version",
}

// only is the part of a header that may pass.
func only(h http.Header, names ...string) http.Header {
	out := http.Header{}
	for _, name := range names {
		if v := h[name]; len(v) > 0 {
			out[name] = v
		}
	}
	return out
}

// forInstance is what of a client's request goes to an instance.
func forInstance(h http.Header) http.Header {
	out := only(h, toInstance[:]...)
	if IsWebSocket(h) {
		maps.Copy(out, only(h, upgradeHeaders[:]...))
		out["Connection"], out["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
	return out
}

// forClient is what of an instance's answer goes to a client.
func forClient(status int, h http.Header) http.Header {
	out := only(h, toClient[:]...)
	if where, given := out["Location"]; given && !isLocal(where[0]) {
		delete(out, "Location")
	}
	if status == http.StatusSwitchingProtocols && IsWebSocket(h) {
		maps.Copy(out, only(h, upgradeHeaders[:]...))
		out["Connection"], out["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
	return out
}

// IsWebSocket reports whether a header asks for, or grants, a WebSocket.
func IsWebSocket(h http.Header) bool {
	return len(h.Values("Upgrade")) == 1 && strings.EqualFold(strings.TrimSpace(h.Get("Upgrade")), "websocket")
}

// isLocal reports whether a redirect stays at the hub. Others would tell the
// instance's own address, or lead a user who trusts the hub elsewhere.
func isLocal(location string) bool {
	if strings.ContainsAny(location, "\\\t\r\n") || strings.HasPrefix(location, "//") {
		return false
	}
	end := strings.IndexAny(location, "/?#")
	if end < 0 {
		end = len(location)
	}
	return !strings.Contains(location[:end], ":") // no scheme
}
