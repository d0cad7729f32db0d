package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/picture"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// keepMask lays the uploaded alpha over the original and stores the result. The name is chosen by
// the uploaded bytes, as in ComfyUI, which compares those, rather than the result, with what is
// there.
func (s *Uploads) keepMask(r *http.Request, caller string, u *upload, f *form) (job.FileRef, error) {
	ctx := r.Context()
	name, same, err := u.expect(ctx, f.file.sha256)
	if err != nil || same {
		return name, err
	}
	p, found, err := originalPlace(f.fields["original_ref"].text)
	if err != nil || !found {
		return name, err
	}
	e, err := s.view.find(ctx, u.tenant, p)
	if errors.Is(err, ErrNotFound) {
		return name, nil
	}
	if err != nil {
		return job.FileRef{}, err
	}
	composed, err := s.compose(ctx, caller, e, f.file)
	switch {
	case errors.Is(err, ErrGone), errors.Is(err, ErrChanged):
		return name, nil
	case errors.Is(err, picture.ErrFormat), errors.Is(err, picture.ErrBomb), errors.Is(err, picture.ErrTooLarge), errors.Is(err, errPNGText):
		return job.FileRef{}, &StatusError{http.StatusInternalServerError}
	case err != nil:
		return job.FileRef{}, err
	}
	defer composed.Close()
	return u.keep(ctx, composed, f.file.sha256)
}

// originalPlace reads original_ref, a JSON object {filename, subfolder, type} in which only
// filename is required. found is false for names that ComfyUI refuses: it then stores nothing and
// still answers with a name.
func originalPlace(reference string) (p place, found bool, err error) {
	trouble := &StatusError{http.StatusInternalServerError}
	value, err := pyjson.Parse([]byte(reference))
	if err != nil {
		return place{}, false, trouble
	}
	object, ok := value.(*pyjson.Object)
	if !ok {
		return place{}, false, trouble
	}
	text := func(key, absent string) (string, bool) {
		member, given := object.Get(key)
		if !given {
			return absent, true
		}
		s, ok := member.(pyjson.String)
		return string(s), ok
	}
	annotated, ok := text("filename", "")
	if _, given := object.Get("filename"); !ok || !given {
		return place{}, false, trouble
	}
	name, typ := job.SplitAnnotation(annotated)
	if name == "" || strings.HasPrefix(name, "/") || climbs(name) {
		return place{}, false, nil
	}
	if typ == "" {
		if typ, ok = text("type", job.TypeOutput); !ok || !knownType(typ) {
			return place{}, false, nil
		}
	}
	subfolder, ok := text("subfolder", "")
	if !ok {
		return place{}, false, trouble
	}
	dir, ok := cleanFolder(subfolder)
	if !ok {
		return place{}, false, nil
	}
	p, found = placeIn(typ, dir, name)
	return p, found, nil
}

// compose makes the masked picture on the local disk.
func (s *Uploads) compose(ctx context.Context, caller string, original Entry, mask *spool) (*spool, error) {
	src, err := s.view.source(ctx, caller, original)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	header, err := src.header(ctx, s.view.gate, caller)
	if err != nil {
		return nil, err
	}
	alpha := &pictureSource{size: mask.size, open: spooledPicture(mask).open}
	alphaHeader, err := alpha.header(ctx, s.view.gate, caller)
	if err != nil {
		return nil, err
	}
	if alphaHeader.Width != header.Width || alphaHeader.Height != header.Height {
		return nil, fmt.Errorf("%w: mask and original differ in size", picture.ErrFormat)
	}
	text, err := s.textSize(ctx, caller, src)
	if err != nil {
		return nil, err
	}
	// Room for everything at once: two that hold one part each could wait for each other's.
	cost := picture.Cost(header, picture.Masked) + picture.Cost(alphaHeader, picture.Masked) + int64(header.Width)*int64(header.Height) + text
	release, err := s.view.gate.Acquire(ctx, caller, cost)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.mask(ctx, masked{src, header, alpha, alphaHeader, text})
}

// masked is what a masked picture is made of.
type masked struct {
	original       *pictureSource
	originalHeader picture.Header
	mask           *pictureSource
	maskHeader     picture.Header
	text           int64 // bytes of the original's text
}

// mask decodes and encodes. When it returns, it keeps nothing of the decoded pictures, so their
// memory can be given back.
func (s *Uploads) mask(ctx context.Context, m masked) (*spool, error) {
	img, err := m.mask.decode(ctx, m.maskHeader)
	if err != nil {
		return nil, err
	}
	alpha := picture.AlphaOf(img)
	if img, err = m.original.decode(ctx, m.originalHeader); err != nil {
		return nil, err
	}
	text, err := pngTextOf(m.original, m.text)
	if err != nil {
		return nil, err
	}
	return fillSpool(ctx, s.store.spool, func(w io.Writer) (int64, error) {
		counted := &countWriter{w: w}
		err := picture.EncodeMasked(ctx, newTextWriter(counted, text), img, alpha)
		return counted.n, err
	})
}

// pngTextOf returns the text chunks of a PNG, which have size bytes.
func pngTextOf(src *pictureSource, size int64) ([]byte, error) {
	body, err := src.open(0, -1)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text := bytes.NewBuffer(make([]byte, 0, size))
	n, err := copyPNGText(&limitedWriter{text, size}, body)
	return text.Bytes()[:min(n, int64(text.Len()))], err
}

// textSize is pngTextSize when it is the caller's turn: it reads the whole file.
func (s *Uploads) textSize(ctx context.Context, caller string, src *pictureSource) (int64, error) {
	release, err := s.view.gate.AcquireHeader(ctx, caller)
	if err != nil {
		return 0, err
	}
	defer release()
	return pngTextSize(src)
}

// pngTextSize returns how long the text chunks of a PNG are, in bytes.
func pngTextSize(src *pictureSource) (int64, error) {
	body, err := src.open(0, -1)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	return copyPNGText(io.Discard, body)
}

// limitedWriter takes left bytes and drops the rest.
type limitedWriter struct {
	w    io.Writer
	left int64
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	part := p[:min(int64(len(p)), l.left)]
	l.left -= int64(len(part))
	if _, err := l.w.Write(part); err != nil {
		return 0, err
	}
	return len(p), nil
}

type countWriter struct {
	w io.Writer
	n int64
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
