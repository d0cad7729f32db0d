package comfyui

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// FileRef is job.FileRef, for programs that know ComfyUI's API and no jobs.
type FileRef = job.FileRef

// viewQuery names a file to /view.
func viewQuery(f job.FileRef) url.Values {
	return url.Values{"filename": {f.Filename}, "subfolder": {f.Subfolder}, "type": {f.Type}}
}

// FileInfo is what a server tells about a file without sending it.
type FileInfo struct {
	// ETag is made of the modification time and the size.
	ETag string
	// Size is in bytes, -1 when not told.
	Size int64
	// ContentType is guessed from the name by the server.
	ContentType string
}

// viewHeaders are the request headers that mean something to /view. Others,
// above all Origin and cookies, stay at the hub.
var viewHeaders = [...]string{
	"Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "Sec-Fetch-Dest",
}

// View opens a file. Of header, ranges and conditions are passed on; nil is
// fine. The answer is the server's own, whatever its status below 500; the
// caller closes its body.
func (c *Client) View(ctx context.Context, ref job.FileRef, header http.Header) (*http.Response, error) {
	return c.ViewQuery(ctx, viewQuery(ref), header)
}

// ViewQuery is [Client.View] with a query of the caller, for previews and channels.
func (c *Client) ViewQuery(ctx context.Context, query url.Values, header http.Header) (*http.Response, error) {
	h := http.Header{}
	for _, key := range viewHeaders {
		if v := header.Values(key); len(v) > 0 {
			h[key] = v
		}
	}
	return c.wire.do(ctx, request{method: http.MethodGet, path: "/view", query: query, header: h})
}

// Stat asks whether the server has a file.
func (c *Client) Stat(ctx context.Context, ref job.FileRef) (info FileInfo, found bool, err error) {
	r := request{method: http.MethodHead, path: "/view", query: viewQuery(ref)}
	resp, err := c.wire.do(ctx, r)
	if err != nil {
		return FileInfo{}, false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return FileInfo{
			ETag: resp.Header.Get("ETag"), Size: resp.ContentLength, ContentType: resp.Header.Get("Content-Type"),
		}, true, nil
	case http.StatusNotFound:
		return FileInfo{}, false, nil
	}
	return FileInfo{}, false, &StatusError{Method: r.method, Path: r.path, Status: resp.StatusCode}
}

// Upload stores a file and returns the name it got: without overwrite another
// one where the name is taken by other bytes. The body is streamed; size is
// its length in bytes, -1 when not known.
func (c *Client) Upload(ctx context.Context, ref job.FileRef, overwrite bool, body io.Reader, size int64) (job.FileRef, error) {
	head, tail, boundary, err := uploadForm(ref, overwrite)
	if err != nil {
		return job.FileRef{}, err
	}
	r := request{
		method: http.MethodPost, path: "/upload/image",
		header: http.Header{"Content-Type": {"multipart/form-data; boundary=" + boundary}},
		body:   io.MultiReader(bytes.NewReader(head), body, bytes.NewReader(tail)),
		size:   -1,
	}
	if size >= 0 {
		r.size = int64(len(head)) + size + int64(len(tail))
	}
	data, err := c.wire.read(ctx, r)
	if err != nil {
		return job.FileRef{}, err
	}
	stored := job.FileRef{Type: ref.Type, Subfolder: ref.Subfolder}
	ok := pyjson.Members(data, func(key string, value []byte) {
		switch key {
		case "name":
			stored.Filename = pyjson.Unquote(value)
		case "subfolder":
			stored.Subfolder = pyjson.Unquote(value)
		case "type":
			stored.Type = pyjson.Unquote(value)
		}
	})
	if !ok || stored.Filename == "" {
		return job.FileRef{}, fmt.Errorf("/upload/image: %w", ErrMalformed)
	}
	return stored, nil
}

var escapeQuotes = strings.NewReplacer("\\", "\\\\", `"`, "\\\"", "\r", "%0D", "\n", "%0A")

// uploadForm returns what stands before and after the file in the form, so that
// the length of the whole is known without holding the file in memory.
func uploadForm(ref job.FileRef, overwrite bool) (head, tail []byte, boundary string, err error) {
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	// Guessing a boundary that is in the file would truncate it; 26
	// characters of randomness are not met by chance.
	if err := w.SetBoundary("comfyhub" + rand.Text()); err != nil {
		return nil, nil, "", err
	}
	fields := [][2]string{{"type", ref.Type}, {"subfolder", ref.Subfolder}}
	if overwrite {
		fields = append(fields, [2]string{"overwrite", "true"})
	}
	for _, f := range fields {
		if err := w.WriteField(f[0], f[1]); err != nil {
			return nil, nil, "", err
		}
	}
	part := textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="image"; filename="` + escapeQuotes.Replace(ref.Filename) + `"`},
		"Content-Type":        {"application/octet-stream"},
	}
	if _, err := w.CreatePart(part); err != nil {
		return nil, nil, "", err
	}
	size := buf.Len()
	if err := w.Close(); err != nil {
		return nil, nil, "", err
	}
	return buf.Bytes()[:size:size], buf.Bytes()[size:], w.Boundary(), nil
}
