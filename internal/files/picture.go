package files

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/draw"
	_ "image/gif" // decoders, by the first bytes of a file
	"image/jpeg"
	"image/png"
	"io"

	_ "golang.org/x/image/bmp"
	_ "golang.org/x/image/tiff"
	_ "golang.org/x/image/webp"

	"golang.org/x/sync/semaphore"
)

const (
	// pictureMemory bounds the bytes of decoded pictures at one time.
	pictureMemory = 768 << 20
	// bytesPerPixel is what decoding and converting one pixel takes, and
	// webpPerPixel what making a WebP of it takes. They bound the largest
	// picture that is decoded, too; a small file can claim to be a very large
	// one.
	bytesPerPixel = 8
	webpPerPixel  = 32
)

// errPicture says that a file is no picture that can be decoded here.
var errPicture = errors.New("files: not a picture that can be decoded")

// decodePicture reads a picture that open gives, twice: its size first, to get
// room for it in the memory, of so many bytes a pixel. free gives the room back.
func decodePicture(ctx context.Context, memory *semaphore.Weighted, perPixel int, open func() (io.ReadCloser, error)) (img image.Image, free func(), err error) {
	config, err := decode(open, image.DecodeConfig)
	if err != nil {
		return nil, nil, err
	}
	if config.Width <= 0 || config.Height <= 0 || config.Width > pictureMemory/perPixel/config.Height {
		return nil, nil, fmt.Errorf("%w: %d by %d pixels", errPicture, config.Width, config.Height)
	}
	room := int64(config.Width) * int64(config.Height) * int64(perPixel)
	if err := memory.Acquire(ctx, room); err != nil {
		return nil, nil, err
	}
	img, err = decode(open, image.Decode)
	if err != nil {
		memory.Release(room)
		return nil, nil, err
	}
	return img, func() { memory.Release(room) }, nil
}

func decode[T any](open func() (io.ReadCloser, error), by func(io.Reader) (T, string, error)) (T, error) {
	body, err := open()
	if err != nil {
		var none T
		return none, err
	}
	defer body.Close()
	from := &sourceReader{r: body}
	v, _, err := by(from)
	switch {
	case from.err != nil:
		return v, from.err
	case err != nil:
		return v, fmt.Errorf("%w: %w", errPicture, err)
	}
	return v, nil
}

// toNRGBA gives a picture with straight alpha: what a transparent pixel hides
// must survive when the alpha is dropped or exchanged.
func toNRGBA(img image.Image) *image.NRGBA {
	if straight, ok := img.(*image.NRGBA); ok {
		return straight
	}
	bounds := img.Bounds()
	if opaque(img) {
		// Without transparency both forms hold the same bytes, and this one
		// has the fast paths.
		flat := image.NewRGBA(bounds)
		draw.Draw(flat, bounds, img, bounds.Min, draw.Src)
		return &image.NRGBA{Pix: flat.Pix, Stride: flat.Stride, Rect: flat.Rect}
	}
	out := image.NewNRGBA(bounds)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			out.Set(x, y, img.At(x, y))
		}
	}
	return out
}

func opaque(img image.Image) bool {
	o, ok := img.(interface{ Opaque() bool })
	return ok && o.Opaque()
}

// dropAlpha makes every pixel opaque and keeps its colour. It changes img.
func dropAlpha(img *image.NRGBA) {
	for i := 3; i < len(img.Pix); i += 4 {
		img.Pix[i] = 0xff
	}
}

// onlyAlpha makes every pixel black and keeps its alpha. It changes img.
func onlyAlpha(img *image.NRGBA) {
	for i := 0; i+3 < len(img.Pix); i += 4 {
		img.Pix[i], img.Pix[i+1], img.Pix[i+2] = 0, 0, 0
	}
}

// hasAlphaChannel reports whether a picture has its own alpha channel, as
// opposed to a palette with transparent colours.
func hasAlphaChannel(img image.Image) bool {
	switch img.(type) {
	case *image.NRGBA, *image.NRGBA64, *image.NYCbCrA, *image.RGBA, *image.RGBA64:
		return true
	}
	return false
}

// alwaysAlpha makes the PNG encoder write the alpha channel of a picture that
// happens to be opaque.
type alwaysAlpha struct{ *image.NRGBA }

func (alwaysAlpha) Opaque() bool { return false }

// withAlpha keeps the fast way of the encoder where there is transparency.
func withAlpha(img *image.NRGBA) image.Image {
	if img.Opaque() {
		return alwaysAlpha{img}
	}
	return img
}

func encodePNG(w io.Writer, img image.Image) error {
	return (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(w, img)
}

// encodeJPEG writes an opaque picture. It takes qualities as Pillow does: what
// is out of bounds is brought to the nearest bound.
func encodeJPEG(w io.Writer, img *image.NRGBA, quality int) error {
	// The picture is opaque, so this type fits as well; for it the encoder has
	// a fast way.
	flat := &image.RGBA{Pix: img.Pix, Stride: img.Stride, Rect: img.Rect}
	return jpeg.Encode(w, flat, &jpeg.Options{Quality: min(max(quality, 1), 100)})
}
