package comfyui

import (
	"net/http"
	"net/http/httputil"
	"strings"
)

// Proxy passes requests on to the instance as they are, escaped paths,
// streamed bodies and WebSocket upgrades included. What a browser says about
// where a request comes from is removed: the instance would refuse a page that
// was loaded from the hub. failed answers for an instance that cannot be
// reached.
func (c *Client) Proxy(failed func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return &httputil.ReverseProxy{
		Transport:     c.transport,
		FlushInterval: -1, // progress streams of custom nodes must not wait for a buffer
		ErrorHandler:  failed,
		Rewrite: func(r *httputil.ProxyRequest) {
			out := r.Out.URL
			out.Scheme, out.Host = c.base.Scheme, c.base.Host
			if c.base.Path != "" {
				escaped := c.base.EscapedPath() + r.In.URL.EscapedPath()
				out.Path, out.RawPath = c.base.Path+r.In.URL.Path, escaped
			}
			r.Out.Host = c.base.Host
			for name := range r.Out.Header {
				if name == "Origin" || strings.HasPrefix(name, "Sec-Fetch-") && name != "Sec-Fetch-Dest" {
					r.Out.Header.Del(name)
				}
			}
			if c.base.User != nil {
				password, _ := c.base.User.Password()
				r.Out.SetBasicAuth(c.base.User.Username(), password)
			}
		},
	}
}
