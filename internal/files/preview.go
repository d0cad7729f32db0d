package files

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/picture"
)

// pictureAsk is what the parameters preview and channel ask for.
type pictureAsk struct {
	raw     bool // the file as it is
	preview bool
	webp    bool // of a preview
	flat    bool // of a preview: without alpha
	quality int
	channel string // "rgb" or "a" when not a preview

	query query
}

// pictureAsked reads preview and channel. preview wins; its format is webp or jpeg, and the quality
// is what follows the last ";" if that is a number. A channel with an "a" in it needs alpha, so it
// is webp.
func pictureAsked(q query) pictureAsk {
	ask := pictureAsk{query: q, channel: q["channel"]}
	preview, given := q["preview"]
	if !given {
		ask.raw = ask.channel != "rgb" && ask.channel != "a"
		return ask
	}
	parts := strings.Split(preview, ";")
	ask.preview = true
	ask.webp = parts[0] != "jpeg" || strings.Contains(ask.channel, "a")
	ask.flat = !ask.webp || ask.channel == "rgb"
	ask.quality = 90
	if last := parts[len(parts)-1]; last != "" && strings.Trim(last, "0123456789") == "" {
		// A number with too many digits is beyond the best quality anyway.
		ask.quality = 100
		if n, err := strconv.Atoi(last); err == nil {
			ask.quality = n
		}
	}
	return ask
}

// form returns the form that the picture is to have.
func (a pictureAsk) form() picture.Form {
	switch {
	case a.preview && a.webp && a.flat:
		return picture.FlatWebP
	case a.preview && a.webp:
		return picture.WebP
	case a.preview:
		return picture.JPEG
	case a.channel == "rgb":
		return picture.RGB
	}
	return picture.Alpha
}

// forInstance returns the query that asks an instance for the same of its file.
func (a pictureAsk) forInstance(src Source) url.Values {
	q := url.Values{"filename": {src.Filename}, "subfolder": {src.Subfolder}, "type": {src.Type}}
	for _, name := range [...]string{"preview", "channel"} {
		if value, given := a.query[name]; given {
			q.Set(name, value)
		}
	}
	return q
}

// servePicture sends a picture made from the file.
func (v *View) servePicture(w http.ResponseWriter, r *http.Request, caller string, e Entry, ask pictureAsk) error {
	made, err := v.picture(r.Context(), caller, e, ask)
	typ := ask.form().Type()
	if errors.Is(err, picture.ErrFormat) || errors.Is(err, picture.ErrTooLarge) {
		// Pillow knows more formats than we do, and an instance may have more memory. The instance
		// made the file itself: an upload has no source, so nobody can send a bomb to an instance
		// this way.
		made, typ, err = v.forwardPicture(r.Context(), caller, e, ask)
	}
	switch {
	case errors.Is(err, picture.ErrBomb), errors.Is(err, errNoPicture):
		// This is how ComfyUI answers what Pillow takes for a bomb. An instance is not asked: while
		// decoding it, it would do nothing else.
		return &StatusError{http.StatusInternalServerError}
	case err != nil:
		return err
	}
	defer made.Close()
	w.Header().Set("Content-Disposition", disposition(e))
	w.Header().Set("Content-Type", typ)
	w.Header().Set("Content-Length", strconv.FormatInt(made.size, 10))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		v.send(r.Context(), w, made.reader(), made.size)
	}
	return nil
}

// forwardFor is how long an instance may take to make a picture.
const forwardFor = time.Minute

// errNoPicture says that the file's instance cannot make the picture.
var errNoPicture = errors.New("files: the instance makes no such picture")

// forwardPicture has the file's instance make the picture, and keeps it as [View.picture] does: few
// may ask at a time, and a slow client would hold up the others.
func (v *View) forwardPicture(ctx context.Context, caller string, e Entry, ask pictureAsk) (made *sketch, typ string, err error) {
	if e.Source == nil || v.options.Preview == nil {
		return nil, "", errNoPicture
	}
	release, err := v.gate.AcquireAsked(ctx, caller)
	if err != nil {
		return nil, "", err
	}
	defer release()
	within, cancel := context.WithTimeout(ctx, forwardFor)
	defer cancel()
	resp, err := v.options.Preview(within, *e.Source, ask.forInstance(*e.Source))
	if err != nil {
		return nil, "", errNoPicture
	}
	defer resp.Body.Close()
	typ = resp.Header.Get("Content-Type")
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(typ, "image/") {
		return nil, "", errNoPicture
	}
	made = v.sketch(ctx)
	if n, err := io.Copy(made, io.LimitReader(resp.Body, maxPictureFile+1)); err != nil || n > maxPictureFile {
		made.Close()
		if errors.Is(err, ErrStorage) || errors.Is(err, budget.ErrFull) {
			return nil, "", err
		}
		return nil, "", errNoPicture
	}
	return made, typ, nil
}

// maxPictureFile bounds the file of a picture that is decoded, in bytes.
const maxPictureFile = 512 << 20

// picture makes the picture here. It is kept in memory or on the local disk until it is sent, so
// that a slow client holds up nobody else.
func (v *View) picture(ctx context.Context, caller string, e Entry, ask pictureAsk) (*sketch, error) {
	src, err := v.source(ctx, caller, e)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	header, err := src.header(ctx, v.gate, caller)
	if err != nil {
		return nil, err
	}
	release, err := v.gate.Acquire(ctx, caller, picture.Cost(header, ask.form())+sketchMemory)
	if err != nil {
		return nil, err
	}
	defer release()
	return v.render(ctx, src, header, ask)
}

// render decodes and encodes. When it returns, it keeps nothing of the decoded picture, so its
// memory can be given back.
func (v *View) render(ctx context.Context, src *pictureSource, header picture.Header, ask pictureAsk) (*sketch, error) {
	img, err := src.decode(ctx, header)
	if err != nil {
		return nil, err
	}
	made := v.sketch(ctx)
	if err := picture.Encode(ctx, made, img, ask.form(), ask.quality); err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}
