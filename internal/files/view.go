package files

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/picture"
)

// View answers GET and HEAD /view, over the files of the whole fleet. Pictures in another form are
// made here; if that is not possible, because of their format or size, the instance that has the
// file is asked for them.
type View struct {
	store   *Store
	fetch   Fetch
	options ViewOptions
	gate    *picture.Gate
}

// ViewOptions are what a View can ask outside of the store; each may be nil.
type ViewOptions struct {
	// Missing asks the instances for a file that the hub does not know. It must not find files of
	// other tenants.
	Missing func(ctx context.Context, tenant string, ref job.FileRef) (Source, bool)
	// Preview asks an instance's /view with a query of its own.
	Preview func(ctx context.Context, src Source, q url.Values) (*http.Response, error)
	// PictureMemory bounds how much memory pictures being made take, in bytes. Default:
	// picture.DefaultMemory.
	PictureMemory func() int64
	// Away is called for each request that failed because Redis was away.
	Away func()
	// Logger never gets names of files. Default: nothing is logged.
	Logger *slog.Logger
}

// NewView makes a View; fetch reaches files that have not been copied yet.
func NewView(store *Store, fetch Fetch, o ViewOptions) *View {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &View{store: store, fetch: fetch, options: o, gate: picture.NewGate(o.PictureMemory)}
}

// ServeView answers one request. Callers take turns at having pictures made. Its checks come in
// ComfyUI's order, because clients see which of them a bad name fails first.
func (v *View) ServeView(w http.ResponseWriter, r *http.Request, tenant, caller string) {
	q := parseQuery(r.URL.RawQuery)
	p, status := viewPlace(q)
	if status != http.StatusOK {
		answerEmpty(w, status)
		return
	}
	e, err := v.find(r.Context(), tenant, p)
	if err != nil {
		answerError(w, r, err, v.options.Logger, v.options.Away)
		return
	}
	ask := pictureAsked(q)
	if ask.raw {
		err = v.serveRaw(w, r, e)
	} else {
		err = v.servePicture(w, r, caller, e, ask)
	}
	if err != nil {
		answerError(w, r, err, v.options.Logger, v.options.Away)
	}
}

// ServeFile answers a request for a file of a tenant, whatever its query says. The error is
// ErrNotFound if there is none, and ErrGone or ErrChanged if its bytes are gone; nothing was
// answered then. It answers all others.
func (v *View) ServeFile(w http.ResponseWriter, r *http.Request, tenant string, ref job.FileRef) error {
	p, ok := placeOf(ref)
	if !ok {
		return ErrNotFound
	}
	e, err := v.find(r.Context(), tenant, p)
	if err == nil {
		err = v.serveRaw(w, r, e)
	}
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrGone) || errors.Is(err, ErrChanged) {
		return err
	}
	if err != nil {
		answerError(w, r, err, v.options.Logger, v.options.Away)
	}
	return nil
}

// viewPlace reads which file is meant, or returns the status that refuses it.
func viewPlace(q query) (place, int) {
	name, given := q["filename"]
	if !given {
		return place{}, http.StatusNotFound
	}
	name, typ := job.SplitAnnotation(name)
	if name == "" || strings.HasPrefix(name, "/") || climbs(name) {
		return place{}, http.StatusBadRequest
	}
	if typ == "" {
		if typ, given = q["type"]; !given {
			typ = job.TypeOutput
		}
	}
	if !knownType(typ) {
		return place{}, http.StatusBadRequest
	}
	dir, ok := cleanFolder(q["subfolder"])
	if !ok {
		return place{}, http.StatusForbidden
	}
	// Folders in the name are dropped; only subfolder counts.
	name = slashes(name)
	p, ok := placeIn(typ, dir, name[strings.LastIndexByte(name, '/')+1:])
	if !ok {
		return place{}, http.StatusNotFound
	}
	return p, http.StatusOK
}

// climbs reports whether a name has a segment "..". ComfyUI refuses a name that has two dots
// anywhere, although its uploads accept one, such as "two..dots.png".
func climbs(name string) bool { return slices.Contains(strings.Split(slashes(name), "/"), "..") }

// find looks for a file at the hub, then on the instances.
func (v *View) find(ctx context.Context, tenant string, p place) (Entry, error) {
	e, err := v.store.show(ctx, tenant, p)
	if !errors.Is(err, ErrNotFound) || v.options.Missing == nil {
		return e, err
	}
	src, found := v.options.Missing(ctx, tenant, p.ref())
	if !found {
		return Entry{}, ErrNotFound
	}
	return Entry{Ref: p.ref(), Size: -1, ETag: src.ETag, Source: &src}, nil
}

// describe sets the headers that every raw answer has, whatever its status: those of ComfyUI since
// 0.28.0. What counts as active content is for the hub to decide, however old the servers are: one
// old server would open the door for all.
func describe(w http.ResponseWriter, r *http.Request, e Entry) {
	h := w.Header()
	typ := mimeType(e.Ref.Filename)
	h.Set("X-Content-Type-Options", "nosniff")
	shown := disposition(e)
	if Active(typ) {
		h.Set("Cache-Control", "no-store")
		h.Set("Vary", "Sec-Fetch-Dest")
		// An <img> does not run an SVG's scripts.
		if typ != "image/svg+xml" || r.Header.Get("Sec-Fetch-Dest") != "image" {
			shown = "attachment; " + shown
			typ = octetStream
		}
	}
	h.Set("Content-Disposition", shown)
	h.Set("Content-Type", typ)
}

// disposition names a file for the browser that saves it.
func disposition(e Entry) string {
	return `filename="` + strings.ReplaceAll(e.Ref.Filename, `"`, `\"`) + `"`
}

// serveRaw sends the file as it is.
func (v *View) serveRaw(w http.ResponseWriter, r *http.Request, e Entry) error {
	if !e.Stored() {
		return v.relay(w, r, e)
	}
	err := ServeContent(w, r, Content{
		ETag: e.ETag, Modified: e.Modified, Size: e.Size, Logger: v.options.Logger,
		Describe: func(http.Header) { describe(w, r, e) },
		Open: func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
			return v.store.Open(ctx, e, offset, length)
		},
	})
	if errors.Is(err, ErrGone) && e.Source != nil {
		return v.relay(w, r, e) // a blob that is gone may still be on its instance
	}
	return err
}

// send copies a body to the client.
func (v *View) send(ctx context.Context, w http.ResponseWriter, body io.Reader, length int64) {
	sendBody(ctx, w, body, length, v.options.Logger)
}
