package picture

import (
	"bytes"
	"io"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// allocated is how many bytes do allocates, whether or not it keeps them.
func allocated(do func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// The header tells an upper bound of all that is allocated, and not much more.
// It is not parallel, for it looks at the whole process.
func TestCost(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates more")
	}
	// Those that say most of what an encoder does with them.
	telling := []string{"png noise", "png type 2 depth 16", "jpeg of Go", "jpeg baseline CMYK", "webp lossy alpha"}
	for _, size := range [][2]int{{900, 600}, {300, 200}, {9, 7}, {10, 900}} {
		for name, data := range kinds(t, size[0], size[1]) {
			h, err := ReadHeader(bytes.NewReader(data), int64(len(data)))
			require.NoError(t, err, name)
			require.Equal(t, size[0], h.Width, name)
			require.Equal(t, size[1], h.Height, name)
			decoding := allocated(func() {
				_, err = Decode(t.Context(), bytes.NewReader(data), h)
			})
			require.NoError(t, err, name)
			pixels := float64(size[0] * size[1])
			if size[0] == 900 {
				t.Logf("%-32s %9d bytes: %6.2f a pixel, bound %6.2f", name, len(data), float64(decoding)/pixels, float64(h.decoding)/pixels)
			}
			require.LessOrEqual(t, decoding, h.decoding, "%s %v", name, size)
			if loose := h.Format == "tiff" || h.Format == "webp" && h.alpha; !loose {
				require.LessOrEqual(t, h.decoding, 2*decoding+2*overhead, "%s %v", name, size)
			}
			if size[0] == 900 || size[0] == 300 && !slices.Contains(telling, name) {
				continue
			}
			for _, form := range []Form{WebP, FlatWebP, JPEG, RGB, Alpha, Masked} {
				took := allocated(func() {
					img, e := Decode(t.Context(), bytes.NewReader(data), h)
					require.NoError(t, e)
					err = Encode(t.Context(), io.Discard, img, form, 100)
				})
				require.NoError(t, err, name)
				require.LessOrEqual(t, took, Cost(h, form), "%s %v as %d", name, size, form)
			}
		}
	}
}
