package files

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/job"
)

// DefaultMaxUpload is the largest file of an upload, in bytes, as in ComfyUI.
const DefaultMaxUpload = 100 << 20

// Uploads answers POST /upload/image and POST /upload/mask.
type Uploads struct {
	store   *Store
	view    *View
	options UploadOptions
}

// UploadOptions adjust Uploads; the zero value is fine.
type UploadOptions struct {
	// MaxSize is the largest file in bytes. Default: DefaultMaxUpload.
	MaxSize func() int64
	// Away is called for each request that failed because Redis was away.
	Away func()
	// Logger never gets names of files. Default: nothing is logged.
	Logger *slog.Logger
}

// NewUploads makes Uploads; view finds the pictures that masks are laid over.
func NewUploads(store *Store, view *View, o UploadOptions) *Uploads {
	if o.MaxSize == nil {
		o.MaxSize = func() int64 { return DefaultMaxUpload }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Uploads{store: store, view: view, options: o}
}

// keeper stores an upload whose name passed the checks, and returns the name it got.
type keeper func(r *http.Request, u *upload, f *form) (job.FileRef, error)

// ServeImage stores a file of any kind, streamed to disk. It answers everything except a
// *FullError, which it returns.
func (s *Uploads) ServeImage(w http.ResponseWriter, r *http.Request, tenant string) error {
	return s.serve(w, r, tenant, func(r *http.Request, u *upload, f *form) (job.FileRef, error) {
		return u.keep(r.Context(), f.file, f.file.sha256)
	})
}

// ServeMask stores the picture that original_ref names, as a PNG with the alpha channel of the
// upload and the text of the original. In ComfyUI a missing original is not an error: nothing is
// stored, and the answer is a name. Callers take turns at having pictures made. It answers
// everything except a *FullError, which it returns.
func (s *Uploads) ServeMask(w http.ResponseWriter, r *http.Request, tenant, caller string) error {
	return s.serve(w, r, tenant, func(r *http.Request, u *upload, f *form) (job.FileRef, error) { return s.keepMask(r, caller, u, f) })
}

func (s *Uploads) serve(w http.ResponseWriter, r *http.Request, tenant string, keep keeper) error {
	ref, err := s.take(w, r, tenant, keep)
	if err != nil {
		return s.Refuse(w, r, err)
	}
	answer(w, http.StatusOK, "application/json; charset=utf-8", []byte(`{"name": `+quote(ref.Filename)+
		`, "subfolder": `+quote(ref.Subfolder)+`, "type": `+quote(ref.Type)+`}`))
	return nil
}

// Refuse answers an upload that failed. It answers everything except a *FullError, which it
// returns.
func (s *Uploads) Refuse(w http.ResponseWriter, r *http.Request, err error) error {
	var over *tooLarge
	var full *FullError
	switch {
	case errors.As(err, &full):
		return full
	case errors.As(err, &over):
		// The rest of the body is not read.
		w.Header().Set("Connection", "close")
		answer(w, http.StatusRequestEntityTooLarge, "text/plain; charset=utf-8", []byte(over.Error()))
	case errors.Is(err, errForm) && !errors.Is(err, budget.ErrFull):
		answerTrouble(w, r)
	default:
		answerError(w, r, err, s.options.Logger, s.options.Away)
	}
	return nil
}

// take reads the form and checks it in ComfyUI's order: the type before the file, the file before
// its name.
func (s *Uploads) take(w http.ResponseWriter, r *http.Request, tenant string, keep keeper) (job.FileRef, error) {
	f, err := readForm(w, r, imageForm(), s.store.spool, s.options.MaxSize())
	if err != nil {
		return job.FileRef{}, err
	}
	defer f.Close()
	typ, given := f.fields["type"]
	if !given {
		typ.text = job.TypeInput
	}
	subfolder := f.fields["subfolder"]
	if typ.binary || !knownType(typ.text) {
		return job.FileRef{}, &StatusError{http.StatusInternalServerError}
	}
	if f.file == nil {
		status := http.StatusInternalServerError
		if image := f.fields["image"]; image.text == "" {
			status = http.StatusBadRequest
		}
		return job.FileRef{}, &StatusError{status}
	}
	if subfolder.binary {
		return job.FileRef{}, &StatusError{http.StatusInternalServerError}
	}
	overwrite := f.fields["overwrite"]
	ref := job.FileRef{Type: typ.text, Subfolder: subfolder.text, Filename: f.filename}
	u, err := s.store.newUpload(r.Context(), tenant, ref, !overwrite.binary && (overwrite.text == "true" || overwrite.text == "1"))
	if err != nil {
		return job.FileRef{}, err
	}
	return keep(r, u, f)
}
