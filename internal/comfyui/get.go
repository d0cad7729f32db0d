package comfyui

import (
	"context"
	"net/url"
)

// Get reads any other answer of the instance; path is escaped. Of anything but
// a 200 the status is told by a *[StatusError].
func (c *Client) Get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return c.get(ctx, path, query)
}
