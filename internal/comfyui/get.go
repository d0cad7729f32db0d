package comfyui

import (
	"context"
	"net/http"
	"net/url"
)

// Get reads any other answer of the instance; path is escaped. Of anything but
// a 200 the status is told by a *[StatusError].
func (c *Client) Get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return c.wire.get(ctx, path, query)
}

// Ask sends a GET and returns any answer below 500; the caller closes its body.
func (c *Client) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	return c.wire.do(ctx, request{method: http.MethodGet, path: path, query: query})
}

// Post sends a POST without a body and reads the answer; path is escaped. Of anything but a
// 200 the status is told by a *[StatusError].
func (c *Client) Post(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return c.wire.read(ctx, request{method: http.MethodPost, path: path, query: query, limit: maxSmall})
}
