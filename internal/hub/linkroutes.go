package hub

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// postFiles answers POST /hub/files: a link to a file that the caller could
// fetch with /view, for those who cannot.
func (h *Hub) postFiles(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	body, done, ok := h.requests.ReadBody(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer done()
	ask := struct {
		Filename, Subfolder, Type string
		ExpiresIn                 int64 `json:"expires_in"` // seconds
	}{Type: files.TypeOutput, ExpiresIn: int64(linkLife / time.Second)}
	if json.Unmarshal(body, &ask) != nil || ask.Filename == "" {
		api.WriteErrorText(w, http.StatusBadRequest, "filename, and perhaps subfolder, type and expires_in, are needed as JSON")
		return
	}
	if ask.ExpiresIn < 1 || ask.ExpiresIn > int64(maxLinkLife/time.Second) {
		api.WriteErrorText(w, http.StatusBadRequest, "expires_in: want 1 to 604800 seconds")
		return
	}
	e, err := h.store.Resolve(r.Context(), a.Tenant, files.Ref{Type: ask.Type, Subfolder: ask.Subfolder, Filename: ask.Filename})
	if errors.Is(err, files.ErrNotFound) || err == nil && !e.Stored() {
		api.WriteErrorText(w, http.StatusNotFound, "File not found")
		return
	}
	now := time.Now()
	expires := now.Add(time.Duration(ask.ExpiresIn) * time.Second)
	link := ""
	if err == nil {
		link, err = h.signer.link(a.Tenant, e.Ref, now, expires)
	}
	if err != nil {
		h.requests.Fail(w, r, err)
		return
	}
	api.WriteValue(w, pyjson.NewObject(
		pyjson.Member{Key: "url", Value: pyjson.String(link)},
		pyjson.Member{Key: "expires", Value: pyjson.Int(expires.Unix())},
	))
}

// getFile answers GET /hub/files/{name}?exp=&sig=, with Range and ETag.
func (h *Hub) getFile(w http.ResponseWriter, r *http.Request, _ api.Requester, path []string) {
	tenant, ref, err := h.signer.open(r.Context(), path[0], api.QueryOf(r), time.Now())
	switch {
	case errors.Is(err, errExpired):
		api.WriteText(w, http.StatusGone, "This link has expired.")
		return
	case errors.Is(err, errTooLong):
		api.WriteText(w, http.StatusForbidden, "This link is not valid: it would work for longer than links may.")
		return
	case errors.Is(err, errForged):
		api.WriteText(w, http.StatusForbidden, "This link is not valid.")
		return
	case err != nil:
		h.requests.Fail(w, r, err)
		return
	}
	e, err := h.store.Resolve(r.Context(), tenant, ref)
	if err == nil && !e.Stored() {
		err = files.ErrGone
	}
	if err == nil {
		err = files.ServeContent(w, r, files.Content{
			ETag: e.ETag, Modified: e.Modified, Size: e.Size, Logger: h.log(),
			Describe: func(header http.Header) { describeLinked(header, ref.Filename) },
			Open: func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
				return h.store.Open(ctx, e, offset, length)
			},
		})
	}
	switch {
	case errors.Is(err, files.ErrNotFound), errors.Is(err, files.ErrGone):
		api.WriteText(w, http.StatusNotFound, "This file is not there any more.")
	case err != nil:
		h.requests.Fail(w, r, err)
	}
}

// describeLinked sets the headers of a linked file. Pictures, videos and sounds
// are shown; nothing that a browser would run is, as it would run under the
// hub's own address.
func describeLinked(header http.Header, name string) {
	kind, disposition := files.ContentType(name), "inline"
	if files.Active(kind) {
		kind, disposition = "application/octet-stream", "attachment"
	}
	header.Set("Content-Type", kind)
	header.Set("Content-Disposition", mime.FormatMediaType(disposition, map[string]string{"filename": name}))
	header.Set("X-Content-Type-Options", "nosniff")
	// The address is the permission: it must not leave with a click on a link
	// in the file, and no cache may outlive it.
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "private, no-cache")
}
