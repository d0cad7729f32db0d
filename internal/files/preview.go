package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/webp"
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

// pictureAsked reads preview and channel. preview wins; its format is webp or
// jpeg, the quality is what follows the last ";" if it is a number. A channel
// with an "a" in it needs alpha, hence webp.
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
		// Too many digits for a number are beyond the best quality anyway.
		ask.quality = 100
		if n, err := strconv.Atoi(last); err == nil {
			ask.quality = n
		}
	}
	return ask
}

// forInstance is the query that asks an instance for the same of its file.
func (a pictureAsk) forInstance(src Source) url.Values {
	q := url.Values{"filename": {src.Filename}, "subfolder": {src.Subfolder}, "type": {src.Type}}
	for _, name := range [...]string{"preview", "channel"} {
		if value, given := a.query[name]; given {
			q.Set(name, value)
		}
	}
	return q
}

// servePicture sends a picture made of the file.
func (v *View) servePicture(w http.ResponseWriter, r *http.Request, e Entry, ask pictureAsk) error {
	typ, body, err := v.picture(r.Context(), e, ask)
	if errors.Is(err, errPicture) {
		// Pillow knows more formats than we do.
		if v.forwardPicture(w, r, e, ask) {
			return nil
		}
		return &StatusError{http.StatusInternalServerError}
	}
	if err != nil {
		return err
	}
	v.name(w, e)
	answer(w, http.StatusOK, typ, body)
	return nil
}

// name sets the disposition of pictures, which no rule of later versions
// touches.
func (v *View) name(w http.ResponseWriter, e Entry) {
	name := e.Ref.Filename
	if v.strict() {
		name = strings.ReplaceAll(name, `"`, `\"`)
	}
	w.Header().Set("Content-Disposition", `filename="`+name+`"`)
}

// forwardPicture lets the file's instance make the picture; false when it
// cannot, and then nothing is sent.
func (v *View) forwardPicture(w http.ResponseWriter, r *http.Request, e Entry, ask pictureAsk) bool {
	if e.Source == nil || v.options.Preview == nil {
		return false
	}
	resp, err := v.options.Preview(r.Context(), *e.Source, ask.forInstance(*e.Source))
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	typ := resp.Header.Get("Content-Type")
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(typ, "image/") {
		return false
	}
	v.name(w, e)
	w.Header().Set("Content-Type", typ)
	if length := resp.Header.Get("Content-Length"); length != "" {
		w.Header().Set("Content-Length", length)
	}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		v.send(w, resp.Body)
	}
	return true
}

// picture makes the picture here.
func (v *View) picture(ctx context.Context, e Entry, ask pictureAsk) (typ string, body []byte, err error) {
	open, closeAll, err := v.opener(ctx, e)
	if err != nil {
		return "", nil, err
	}
	defer closeAll()
	perPixel := bytesPerPixel
	if ask.preview && ask.webp {
		perPixel = webpPerPixel
	}
	decoded, free, err := decodePicture(ctx, v.memory, perPixel, open)
	if err != nil {
		return "", nil, err
	}
	defer free()
	// Each encoder has a processor of its own, and some are left for the rest.
	if err := v.encoders.Acquire(ctx, 1); err != nil {
		return "", nil, err
	}
	defer v.encoders.Release(1)
	return render(decoded, ask)
}

// render encodes a decoded picture as asked.
func render(decoded image.Image, ask pictureAsk) (typ string, body []byte, err error) {
	own := hasAlphaChannel(decoded)
	img := toNRGBA(decoded)
	var out bytes.Buffer
	switch {
	case ask.preview:
		if ask.flat {
			dropAlpha(img)
		}
		if ask.webp {
			typ, err = "image/webp", webp.Encode(&out, img, ask.quality)
		} else {
			typ, err = "image/jpeg", encodeJPEG(&out, img, ask.quality)
		}
	case ask.channel == "rgb":
		dropAlpha(img)
		typ, err = "image/png", encodePNG(&out, img)
	default:
		if !own {
			dropAlpha(img)
		}
		onlyAlpha(img)
		typ, err = "image/png", encodePNG(&out, withAlpha(img))
	}
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errPicture, err)
	}
	return typ, out.Bytes(), nil
}

// opener gives a function that opens the file's bytes any number of times. One
// that is only on an instance is fetched once, to the local disk.
func (v *View) opener(ctx context.Context, e Entry) (open func() (io.ReadCloser, error), closeAll func(), err error) {
	if e.Stored() {
		open = func() (io.ReadCloser, error) { return v.store.Open(ctx, e, 0, -1) }
		return open, func() {}, nil
	}
	resp, err := v.fetch(ctx, *e.Source, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errInstance, err)
	}
	defer resp.Body.Close()
	if err := checkFetched(resp, *e.Source); err != nil {
		return nil, nil, err
	}
	sp, err := newSpool(v.store.spool, resp.Body, 0)
	if err != nil {
		return nil, nil, err
	}
	open = func() (io.ReadCloser, error) { return io.NopCloser(sp.reader()), nil }
	return open, sp.Close, nil
}
