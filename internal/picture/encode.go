package picture

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"

	"github.com/comfyhub/comfyhub/internal/webp"
)

// Form is an encoded form of a picture.
type Form int

// The forms of a picture.
const (
	// WebP keeps the alpha.
	WebP Form = iota
	// FlatWebP and JPEG drop the alpha and keep the colours under it.
	FlatWebP
	JPEG
	// RGB is a PNG without the alpha.
	RGB
	// Alpha is a PNG of black pixels with the alpha.
	Alpha
	// Masked is a PNG whose alpha is replaced.
	Masked
)

// Type returns the content type of the form.
func (f Form) Type() string {
	switch f {
	case WebP, FlatWebP:
		return "image/webp"
	case JPEG:
		return "image/jpeg"
	default:
		return "image/png"
	}
}

// Cost returns an upper bound for the bytes that decoding a picture and encoding it
// in a form allocate in total: what is freed on the way may still be in memory.
func Cost(h Header, f Form) int64 {
	cost := h.decoding + encoderOverhead
	switch f {
	case WebP, FlatWebP:
		padded := (int64(h.Width) + 15) / 16 * 16 * ((int64(h.Height) + 15) / 16 * 16)
		cost += webp.Memory(h.Width, h.Height)
		if f == WebP && h.alpha {
			cost += 3 * padded
		}
	case JPEG:
		if !h.straight && !h.planar {
			cost += 4 * h.pixels()
		}
	default:
		if !h.straight {
			cost += 4 * h.pixels()
		}
		if f == Alpha || f == Masked {
			cost += 4 * h.pixels() // alwaysAlpha creates a value for each pixel
		}
		cost += 8 * 4 * int64(h.Width) // rows with each of the filters
	}
	return cost
}

// encoderOverhead is the memory of an encoder besides the pixels.
const encoderOverhead = 1400 << 10

// Encode encodes a picture, which it may change. quality is from 0 to 100, as in
// Pillow: values beyond are clamped. It ends early if ctx does.
func Encode(ctx context.Context, w io.Writer, img image.Image, f Form, quality int) error {
	w = &whileWanted{ctx, w}
	switch f {
	case WebP:
		return wrong(webp.Encode(ctx, w, rowsOf(img), quality))
	case FlatWebP:
		return wrong(webp.Encode(ctx, w, flat{rowsOf(img), make([]uint8, 0, 4*img.Bounds().Dx())}, quality))
	case JPEG:
		options := &jpeg.Options{Quality: min(max(quality, 1), 100)}
		if samples, ok := img.(*image.YCbCr); ok {
			return wrong(jpeg.Encode(w, samples, options))
		}
		own := toNRGBA(img)
		dropAlpha(own)
		// The picture is opaque, so this type fits as well, and the encoder has a
		// fast path for it.
		return wrong(jpeg.Encode(w, &image.RGBA{Pix: own.Pix, Stride: own.Stride, Rect: own.Rect}, options))
	case RGB:
		own := toNRGBA(img)
		dropAlpha(own)
		return wrong(encodePNG(w, own))
	default:
		transparent := hasAlpha(img)
		own := toNRGBA(img)
		if !transparent {
			dropAlpha(own)
		}
		for n := 0; n+3 < len(own.Pix); n += 4 {
			own.Pix[n], own.Pix[n+1], own.Pix[n+2] = 0, 0, 0
		}
		return wrong(encodePNG(w, withAlpha(own)))
	}
}

// EncodeMasked encodes a PNG of a picture with another alpha channel, row by row.
// It changes the picture.
func EncodeMasked(ctx context.Context, w io.Writer, img image.Image, alpha []uint8) error {
	own := toNRGBA(img)
	width := own.Rect.Dx()
	if len(alpha) != width*own.Rect.Dy() {
		return fmt.Errorf("%w: mask and picture differ in size", ErrFormat)
	}
	for n, a := range alpha {
		own.Pix[n/width*own.Stride+n%width*4+3] = a
	}
	return wrong(encodePNG(&whileWanted{ctx, w}, withAlpha(own)))
}

// wrong marks errors about what an encoder cannot write, such as too large a size.
func wrong(err error) error {
	if err == nil || errors.As(err, new(*writeError)) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}

func encodePNG(w io.Writer, img image.Image) error {
	return (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(w, img)
}

// alwaysAlpha makes the PNG encoder write the alpha channel of a picture that
// happens to be opaque.
type alwaysAlpha struct{ *image.NRGBA }

func (alwaysAlpha) Opaque() bool { return false }

// withAlpha keeps the encoder's fast path if there is transparency.
func withAlpha(img *image.NRGBA) image.Image {
	if img.Opaque() {
		return alwaysAlpha{img}
	}
	return img
}

// whileWanted stops an encoder when nobody waits for the picture any more.
type whileWanted struct {
	ctx context.Context
	w   io.Writer
}

func (w *whileWanted) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, &writeError{err}
	}
	n, err := w.w.Write(p)
	if err != nil {
		err = &writeError{err}
	}
	return n, err
}

// writeError is an error of the destination, not of the picture.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }
