package ops

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// postFiles answers POST /hub/files: a link to a file that the caller could
// fetch with /view, for those who cannot.
func (o *room) postFiles(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	body, done, ok := o.ReadBody(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer done()
	ask := struct {
		Filename, Subfolder, Type string
		ExpiresIn                 int64 `json:"expires_in"` // seconds
	}{Type: job.TypeOutput, ExpiresIn: int64(links.LinkLife / time.Second)}
	if json.Unmarshal(body, &ask) != nil || ask.Filename == "" {
		api.WriteErrorText(w, http.StatusBadRequest, "filename, and perhaps subfolder, type and expires_in, are needed as JSON")
		return
	}
	if ask.ExpiresIn < 1 || ask.ExpiresIn > int64(links.MaxLinkLife/time.Second) {
		api.WriteErrorText(w, http.StatusBadRequest, "expires_in: want 1 to 604800 seconds")
		return
	}
	expires := time.Now().Add(time.Duration(ask.ExpiresIn) * time.Second)
	ref := job.FileRef{Type: ask.Type, Subfolder: ask.Subfolder, Filename: ask.Filename}
	link, err := o.hub().Links.Make(r.Context(), a.Tenant, ref, expires)
	switch {
	case errors.Is(err, links.ErrNoFile):
		api.WriteErrorText(w, http.StatusNotFound, "File not found")
	case err != nil:
		o.Fail(w, r, err)
	default:
		api.WriteValue(w, pyjson.NewObject(
			pyjson.Member{Key: "url", Value: pyjson.String(a.Prefix + api.LinkPath + link)},
			pyjson.Member{Key: "expires", Value: pyjson.Int(expires.Unix())},
		))
	}
}

// getFile answers GET /hub/files/{name}?exp=&sig=, with Range and ETag.
func (o *room) getFile(w http.ResponseWriter, r *http.Request, _ api.Requester, path []string) {
	q := api.QueryOf(r)
	f, err := o.hub().Links.Open(r.Context(), path[0], q.Get("exp"), q.Get("sig"))
	if err == nil {
		err = files.ServeContent(w, r, files.Content{
			ETag: f.ETag, Modified: f.Modified, Size: f.Size, Logger: o.Log(), Open: f.Open,
			Describe: func(header http.Header) { describeLinked(header, f.Ref.Filename) },
		})
	}
	switch {
	case err == nil:
	case errors.Is(err, links.ErrLinkExpired):
		api.WriteText(w, http.StatusGone, "This link has expired.")
	case errors.Is(err, links.ErrLinkTooLong):
		api.WriteText(w, http.StatusForbidden, "This link is not valid: it would work for longer than links may.")
	case errors.Is(err, links.ErrLinkForged):
		api.WriteText(w, http.StatusForbidden, "This link is not valid.")
	case errors.Is(err, links.ErrNoFile):
		api.WriteText(w, http.StatusNotFound, "This file is not there any more.")
	default:
		o.Fail(w, r, err)
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
	// The address is the permission: it must not leave with a click on a link
	// in the file, and no cache may outlive it.
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "private, no-cache")
}
