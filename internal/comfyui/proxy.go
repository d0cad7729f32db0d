package comfyui

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"
)

// flushAfter is how long a part of an answer of known length waits for the next ones.
// Answers of unknown length, such as progress streams of custom nodes, wait for nothing.
// If nothing waited, the header of each answer would be a packet of its own.
const flushAfter = 10 * time.Millisecond

// Proxy passes requests of hubs on to the instance as they are, escaped paths,
// streamed bodies and WebSocket upgrades included; what may pass was decided at
// the hub, see [Client.Forward]. The path of a request is the path at the
// instance. An instance that gives no answer is 502 with [UnreachableHeader],
// as a [Client] that asks through an agent expects it.
func (c *Client) Proxy() http.Handler {
	return &httputil.ReverseProxy{
		// Routes of custom nodes may wait for a person.
		Transport:     c.wire.patient.Transport,
		FlushInterval: flushAfter,
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			stripBrowser(r.Out.Header)
			u := *r.In.URL
			u.Scheme, u.Host = c.wire.base.Scheme, c.wire.base.Host
			u.Path = c.wire.base.Path + r.In.URL.Path
			u.RawPath = c.wire.base.EscapedPath() + r.In.URL.EscapedPath()
			r.Out.URL, r.Out.Host = &u, c.wire.base.Host
			c.wire.logIn(r.Out)
		},
		ModifyResponse: func(resp *http.Response) error {
			if resp.Header.Get(HubHeader) != "" || resp.Header.Get(UnreachableHeader) != "" {
				return checkAnswer(resp)
			}
			return nil // errors of the instance itself are for the client to see
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			answerUnreachable(w, r, c.wire.proxyError(err))
		},
	}
}

func answerUnreachable(w http.ResponseWriter, _ *http.Request, err error) {
	switch {
	case errors.Is(err, ErrGone):
		w.Header().Set(UnreachableHeader, Gone)
	case errors.Is(err, ErrUnreachable), errors.Is(err, ErrHub):
		w.Header().Set(UnreachableHeader, plainReason(err))
	}
	w.WriteHeader(http.StatusBadGateway)
}

// stripBrowser removes the headers by which a ComfyUI server recognises
// requests of other sites. Sec-Fetch-Dest stays: /view looks at it.
func stripBrowser(h http.Header) {
	h.Del("Origin")
	for key := range h {
		if strings.HasPrefix(key, "Sec-Fetch-") && key != "Sec-Fetch-Dest" {
			delete(h, key)
		}
	}
}
