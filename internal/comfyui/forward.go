package comfyui

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
)

// secretKeys are the keys of a query that are for the hub alone.
var secretKeys = [...]string{"token", "access_token"}

// ForwardedQuery is the part of a raw query that an instance may see.
func ForwardedQuery(raw string) string { return aiohttp.WithoutKeys(raw, secretKeys[:]...) }

// Forward lets the instance answer a client's request for path, with streamed
// bodies and WebSocket upgrades. Only the canonical path, the query without
// secrets, and the headers that may pass go there and come back. failed
// answers for an instance that gave no answer; its error is as of the other
// calls. A short text that comes back has the clients' own ids in place of their
// aliases.
func (c *Client) Forward(w http.ResponseWriter, r *http.Request, path aiohttp.Path, aliases []Alias, failed func(http.ResponseWriter, *http.Request, error)) {
	proxy := httputil.ReverseProxy{
		// Routes of custom nodes may wait for a person.
		Transport:     finalAnswers{c.wire.patient.Transport},
		FlushInterval: flushAfter,
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.URL = c.wire.forwardURL(path, out.In.URL.RawQuery)
			out.Out.Host = c.wire.base.Host
			out.Out.Header = forInstance(out.Out.Header)
			out.Out.Trailer = nil
			c.wire.sign(out.Out)
		},
		ModifyResponse: func(resp *http.Response) error {
			if resp.Header.Get(HubHeader) != "" || resp.Header.Get(UnreachableHeader) != "" {
				return checkAnswer(resp)
			}
			resp.Header = forClient(resp.StatusCode, resp.Header)
			return unalias(resp, aliases) // errors of the instance itself are for the client to see
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { failed(w, r, c.wire.proxyError(err)) },
	}
	proxy.ServeHTTP(w, r)
}

func (w *wire) forwardURL(path aiohttp.Path, rawQuery string) *url.URL {
	u := *w.base
	u.User = nil
	u.Path = w.base.Path + path.Decoded()
	u.RawPath = w.base.EscapedPath() + path.Escaped()
	u.RawQuery = ForwardedQuery(rawQuery)
	return &u
}

// finalAnswers is a transport that hides informational (1xx) answers.
// Headers of interim answers (103 Early Hints) and trailers go around
// ModifyResponse, straight to the client.
type finalAnswers struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t finalAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r.WithContext(untraced{r.Context()}))
	if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	resp.Trailer = nil
	resp.Body = noTrailer{resp.Body, resp}
	return resp, nil
}

// untraced is a context without values: the hooks by which ReverseProxy passes
// interim answers on are one.
type untraced struct{ context.Context }

func (untraced) Value(any) any { return nil }

// noTrailer is a body after which no trailer is left.
type noTrailer struct {
	io.ReadCloser
	resp *http.Response
}

func (b noTrailer) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.resp.Trailer = nil
	}
	return n, err
}
