package sim

import (
	"bytes"
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
		decoded, err := webp.Decode(bytes.NewReader(encodeWebP(img)))
		require.NoError(t, err, "%v", size)
		assert.Equal(t, img.Pix, decoded.(*image.NRGBA).Pix, "%v", size)
	}
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
