package sim

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/image/webp"
)

func TestWebPRoundTrip(t *testing.T) {
	for _, size := range []image.Point{{1, 1}, {3, 2}, {64, 48}} {
		img := paint(scene{texts: []string{"x"}, width: size.X, height: size.Y}, 0.5)
		img.SetNRGBA(0, 0, color.NRGBA{1, 2, 3, 4})
		data, err := encodeWebP(img, 90)
		require.NoError(t, err, "%v", size)
		decoded, err := webp.Decode(bytes.NewReader(data))
		require.NoError(t, err, "%v", size)
		assert.Equal(t, img.Rect, decoded.Bounds(), "%v", size)
		assert.EqualValues(t, 4, decoded.(*image.NYCbCrA).A[0], "%v", size)
	}
	_, err := encodeWebP(image.NewNRGBA(image.Rect(0, 0, 1, 16384)), 90)
	require.Error(t, err)
}

// Each frame of an animation is a picture: one that decodes as a file of its own.
func TestAnimatedWebP(t *testing.T) {
	opaque := flat(5, 3, color.NRGBA{9, 9, 9, 255})
	clear := flat(5, 3, color.NRGBA{9, 9, 9, 7})
	data, err := encodeAnimatedWebP(images{opaque, clear, clear}, 6)
	require.NoError(t, err)
	frames := bytes.Split(data, []byte("ANMF"))[1:]
	require.Len(t, frames, 3)
	for n, frame := range frames {
		frame = frame[4+16 : 4+binary.LittleEndian.Uint32(frame)]
		header := []byte{0x10, 0, 0, 0, 4, 0, 0, 2, 0, 0}
		if n == 0 {
			header[0] = 0
		}
		file := chunk("RIFF", []byte("WEBP"), chunk("VP8X", header), frame)
		decoded, err := webp.Decode(bytes.NewReader(file))
		require.NoError(t, err)
		require.Equal(t, opaque.Rect, decoded.Bounds())
	}
	_, err = encodeAnimatedWebP(images{image.NewNRGBA(image.Rect(0, 0, 16384, 1))}, 6)
	require.Error(t, err)
}

func TestPNGTexts(t *testing.T) {
	chunks := []pngText{{"prompt", `{"1": {}}`}, {"workflow", "{}"}}
	data := encodePNG(flat(3, 3, color.NRGBA{A: 255}), chunks)
	assert.Equal(t, chunks, pngTexts(data))
	_, _, err := image.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	assert.Empty(t, pngTexts(data[:40]))
}

func TestPaintSharpens(t *testing.T) {
	s := scene{texts: []string{"a red fox"}, seed: 7, width: 48, height: 48}
	final := paint(s, 1)
	distance := func(img *image.NRGBA) (sum int) {
		for i := range img.Pix {
			sum += max(int(img.Pix[i]), int(final.Pix[i])) - min(int(img.Pix[i]), int(final.Pix[i]))
		}
		return sum
	}
	last := distance(paint(s, 0.1))
	for _, sharpness := range []float64{0.4, 0.7, 0.95, 1} {
		d := distance(paint(s, sharpness))
		assert.Less(t, d, last, "sharpness %g", sharpness)
		last = d
	}
}
