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
