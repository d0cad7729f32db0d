package comfyui

import (
	"context"
	"io"
	"net/http"
)

// Put stores a body of size bytes at a route of a custom node; path is
// escaped. Of anything but a 2xx the status is told by a *[StatusError].
func (c *Client) Put(ctx context.Context, path, contentType string, body io.Reader, size int64) error {
	r := request{
		method: http.MethodPut, path: path, header: http.Header{"Content-Type": {contentType}},
		body: body, size: size,
	}
	resp, err := c.wire.do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return &StatusError{Method: r.method, Path: r.path, Status: resp.StatusCode, Text: errorText(resp.Body)}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorText)) // so that the connection can be used again
	return nil
}
