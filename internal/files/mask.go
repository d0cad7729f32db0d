package files

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"net/http"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// keepMask lays the uploaded alpha over the original and stores the result. The
// name is chosen by the uploaded bytes, as in ComfyUI, which compares those and
// not the result with what is there.
func (s *Uploads) keepMask(r *http.Request, u *upload, f *form) (Ref, error) {
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
		return Ref{}, err
	}
	composed, err := s.compose(ctx, e, f.file)
	switch {
	case errors.Is(err, ErrGone), errors.Is(err, ErrChanged):
		return name, nil
	case errors.Is(err, errPicture), errors.Is(err, errPNGText):
		return Ref{}, &StatusError{http.StatusInternalServerError}
	case err != nil:
		return Ref{}, err
	}
	defer composed.Close()
	return u.keep(ctx, composed, f.file.sha256)
}

// originalPlace reads original_ref, a JSON object {filename, subfolder, type}
// in which only filename must be. found is false for names that ComfyUI
// refuses: it then stores nothing and still answers with a name.
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
	name, typ := splitAnnotation(annotated)
	if name == "" || strings.HasPrefix(name, "/") || strings.Contains(name, "..") {
		return place{}, false, nil
	}
	if typ == "" {
		if typ, ok = text("type", TypeOutput); !ok || !knownType(typ) {
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
func (s *Uploads) compose(ctx context.Context, original Entry, mask *spool) (*spool, error) {
	open, closeAll, err := s.view.opener(ctx, original)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	text, err := pngTextOf(open)
	if err != nil {
		return nil, err
	}
	// The mask's alpha is a byte a pixel; the original must not wait for room
	// while the mask holds some, or two requests could wait for each other.
	alpha, size, err := s.alphaOf(ctx, mask)
	if err != nil {
		return nil, err
	}
	decoded, free, err := decodePicture(ctx, s.view.memory, bytesPerPixel, open)
	if err != nil {
		return nil, err
	}
	defer free()
	img := toNRGBA(decoded)
	if img.Rect.Size() != size {
		return nil, fmt.Errorf("%w: mask and original differ in size", errPicture)
	}
	width := size.X
	for i, a := range alpha {
		img.Pix[(i/width)*img.Stride+(i%width)*4+3] = a
	}
	return fillSpool(s.store.spool, func(w io.Writer) (int64, error) {
		counted := &countWriter{w: w}
		err := encodePNG(newTextWriter(counted, text), withAlpha(img))
		return counted.n, err
	})
}

// alphaOf reads the alpha channel of a picture, row by row.
func (s *Uploads) alphaOf(ctx context.Context, sp *spool) ([]byte, image.Point, error) {
	decoded, free, err := decodePicture(ctx, s.view.memory, bytesPerPixel, func() (io.ReadCloser, error) {
		return io.NopCloser(sp.reader()), nil
	})
	if err != nil {
		return nil, image.Point{}, err
	}
	defer free()
	img := toNRGBA(decoded)
	size := img.Rect.Size()
	alpha := make([]byte, 0, size.X*size.Y)
	for y := range size.Y {
		row := img.Pix[y*img.Stride:]
		for x := range size.X {
			alpha = append(alpha, row[x*4+3])
		}
	}
	return alpha, size, nil
}

func pngTextOf(open func() (io.ReadCloser, error)) ([]byte, error) {
	body, err := open()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return readPNGText(body)
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
