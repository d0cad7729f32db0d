package webp

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"image/color"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	xwebp "golang.org/x/image/webp"
)

// straight gives the rows of a picture.
type straight struct{ *image.NRGBA }

func (s straight) Row(y int, _ []uint8) []uint8 { return s.Pix[y*s.Stride:][:4*s.Rect.Dx()] }

// paint makes a picture of a function.
func paint(width, height int, at func(x, y int) color.NRGBA) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			img.SetNRGBA(x, y, at(x, y))
		}
	}
	return img
}

func noise(seed uint64) func(x, y int) color.NRGBA {
	r := rand.New(rand.NewPCG(seed, 1))
	return func(int, int) color.NRGBA {
		v := r.Uint32()
		return color.NRGBA{uint8(v), uint8(v >> 8), uint8(v >> 16), uint8(v >> 24)}
	}
}

// scenery has flat parts, gradients, edges and some noise, as photographs do.
func scenery(x, y int) color.NRGBA {
	r := 128 + 100*math.Sin(float64(x)/37)*math.Cos(float64(y)/23)
	g := float64((x*x+y*y)/300%256)*0.3 + float64(y%256)*0.5
	b := 40.0
	if (x/40+y/56)%2 == 0 {
		b = 200
	}
	grain := float64((x*7919+y*104729)%13) - 6
	c := func(v float64) uint8 { return uint8(min(max(v+grain, 0), 255)) }
	return color.NRGBA{c(r), c(g), c(b), 255}
}

func opaque(at func(x, y int) color.NRGBA) func(x, y int) color.NRGBA {
	return func(x, y int) color.NRGBA {
		c := at(x, y)
		c.A = 255
		return c
	}
}

// planes gives what a decoder made of a picture.
func planes(t testing.TB, data []byte) (y *image.YCbCr, alpha []uint8) {
	t.Helper()
	img, err := xwebp.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	switch img := img.(type) {
	case *image.YCbCr:
		return img, nil
	case *image.NYCbCrA:
		for row := range img.Rect.Dy() {
			alpha = append(alpha, img.A[row*img.AStride:][:img.Rect.Dx()]...)
		}
		return &img.YCbCr, alpha
	}
	t.Fatalf("decoded as %T", img)
	return nil, nil
}

var sizes = [][2]int{{1, 1}, {2, 3}, {15, 17}, {16, 16}, {17, 33}, {64, 48}, {100, 7}, {131, 129}}

// Every decoder must have the same pixels as the encoder thought, else errors
// grow from one macroblock to the next. With the loop filter off they are equal.
func TestDecoderHasWhatTheEncoderThought(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(x, y int) color.NRGBA{"noise": opaque(noise(1)), "scenery": scenery} {
		for _, size := range sizes {
			for _, quality := range []int{-5, 0, 30, 75, 90, 100, 1000} {
				img := paint(size[0], size[1], at)
				f := newFrame(size[0], size[1], quality)
				f.fill(straight{img})
				require.NoError(t, f.code(t.Context()))
				f.smoothing = 0
				var out bytes.Buffer
				require.NoError(t, writeRIFF(&out, []chunk{{"VP8 ", f.bytes()}}))
				got, _ := planes(t, out.Bytes())
				require.Equal(t, image.Rect(0, 0, size[0], size[1]), got.Rect)
				for y := range size[1] {
					require.Equal(t, f.madeY.pix[y*f.madeY.width:][:size[0]], got.Y[y*got.YStride:][:size[0]],
						"%s %v quality %d row %d", name, size, quality, y)
				}
				for y := range (size[1] + 1) / 2 {
					w := (size[0] + 1) / 2
					require.Equal(t, f.madeU.pix[y*f.madeU.width:][:w], got.Cb[y*got.CStride:][:w])
					require.Equal(t, f.madeV.pix[y*f.madeV.width:][:w], got.Cr[y*got.CStride:][:w])
				}
			}
		}
	}
}

// psnr is how near two channels are, in decibels.
func psnr(a, b []uint8) float64 {
	var sum float64
	for n := range a {
		d := float64(a[n]) - float64(b[n])
		sum += d * d
	}
	return 10 * math.Log10(255*255*float64(len(a))/max(sum, 1e-9))
}

// A picture of more tokens than are kept is as exact, and takes no more memory
// than Memory says. It is not parallel, for it looks at the whole process.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("much computing, one thing after the other: nothing for the race detector")
	}
	for _, c := range []struct {
		name          string
		width, height int
		at            func(x, y int) color.NRGBA
		quality       int
		slack         int64 // how many times too high the bound may be
	}{
		{"noise at its best", 1000, 700, opaque(noise(2)), 100, 2},
		{"black and white noise", 1000, 700, func(x, y int) color.NRGBA {
			v := uint8((x*2654435761 + y*40503*(x^y)) >> 7 & 1 * 255)
			return color.NRGBA{v, v, v, 255}
		}, 100, 3},
		{"noise", 1000, 700, opaque(noise(2)), 50, 3},
		{"scenery", 1000, 700, scenery, 90, 4},
		{"narrow", 1, 5000, opaque(noise(2)), 100, 3},
		{"flat", MaxSize, 20, opaque(noise(2)), 100, 3},
		{"small", 8, 8, opaque(noise(2)), 100, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			img := paint(c.width, c.height, c.at)
			out := bytes.NewBuffer(make([]byte, 0, 8<<20))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := Encode(t.Context(), out, straight{img}, c.quality)
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			took, bound := int64(after.TotalAlloc-before.TotalAlloc), Memory(c.width, c.height)
			pixels := int64(c.width * c.height)
			t.Logf("%d bytes, %.2f a pixel; bound %.2f a pixel; output %.2f a pixel", took, float64(took)/float64(pixels), float64(bound)/float64(pixels), float64(out.Len())/float64(pixels))
			require.LessOrEqual(t, took, bound)
			require.LessOrEqual(t, bound, c.slack*took+1<<20)
			got, _ := planes(t, out.Bytes())
			require.Equal(t, img.Rect, got.Rect)
			if c.quality == 100 && c.width == 1000 {
				f := newFrame(c.width, c.height, 100)
				f.fill(straight{img})
				require.Greater(t, psnr(f.y.pix[:1000], got.Y[:1000]), 40.0)
				last := 699 * got.YStride
				require.Greater(t, psnr(f.y.pix[699*f.y.width:][:1000], got.Y[last:][:1000]), 40.0)
			}
		})
	}
}

// Nobody waits for the picture any more.
func TestEncodeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Encode(ctx, &bytes.Buffer{}, straight{paint(64, 64, scenery)}, 90), context.Canceled)
}

// A better quality is nearer to the picture and takes more bytes.
func TestQuality(t *testing.T) {
	t.Parallel()
	img := paint(256, 192, scenery)
	lastSize, lastNear := 0, 0.0
	for _, c := range []struct {
		quality int
		near    float64
	}{{10, 25}, {50, 30}, {80, 34}, {90, 38}, {100, 46}} {
		var out bytes.Buffer
		require.NoError(t, Encode(context.Background(), &out, straight{img}, c.quality))
		got, _ := planes(t, out.Bytes())
		f := newFrame(256, 192, 0)
		f.fill(straight{img})
		near := psnr(f.y.pix, got.Y)
		t.Logf("quality %d: %d bytes, %.1f dB", c.quality, out.Len(), near)
		require.Greater(t, near, c.near, "quality %d", c.quality)
		require.Greater(t, near, lastNear)
		require.Greater(t, out.Len(), lastSize)
		lastSize, lastNear = out.Len(), near
	}
	require.Less(t, lastSize, 256*192*3)
}

func TestAlpha(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(x, y int) uint8{
		"runs":   func(x, y int) uint8 { return uint8(x / 9 * 20) },
		"halves": func(x, _ int) uint8 { return uint8(x%2) * 255 },
		"all":    func(x, y int) uint8 { return uint8(x*31 + y*17) },
		"none":   func(int, int) uint8 { return 0 },
		"one":    func(int, int) uint8 { return 7 },
		"rare": func(x, y int) uint8 { // counts of every power of two: the longest codes
			n := 0
			for v := uint32(x*131+y*977+1) * 2654435761; v&1 == 0 && n < 30; v >>= 1 {
				n++
			}
			return uint8(n)
		},
	} {
		for _, size := range append(sizes, [2]int{300, 200}) {
			img := paint(size[0], size[1], func(x, y int) color.NRGBA {
				c := scenery(x, y)
				c.A = at(x, y)
				return c
			})
			img.Pix[3] = min(img.Pix[3], 254)
			var out bytes.Buffer
			require.NoError(t, Encode(context.Background(), &out, straight{img}, 90))
			require.Zero(t, out.Len()%2)
			require.EqualValues(t, out.Len()-8, binary.LittleEndian.Uint32(out.Bytes()[4:]))
			_, alpha := planes(t, out.Bytes())
			require.Equal(t, alphaOf(straight{img}), alpha, "%s %v", name, size)
		}
	}
}

func TestLongCodesAreShortened(t *testing.T) {
	t.Parallel()
	counts := make([]int, alphabet)
	a, b := 1, 1
	for n := range 30 { // Fibonacci's numbers make the longest codes
		counts[n] = a
		a, b = b, a+b
	}
	lengths := codeLengths(counts)
	var sum float64
	for n, length := range lengths {
		require.Equal(t, counts[n] > 0, length > 0)
		require.LessOrEqual(t, length, longestCode)
		if length > 0 {
			sum += math.Pow(2, -float64(length))
		}
	}
	require.InDelta(t, 1, sum, 1e-12, "the code is complete")
}

func TestParts(t *testing.T) {
	t.Parallel()
	whole := paint(64, 64, scenery)
	part := whole.SubImage(image.Rect(16, 16, 48, 40)).(*image.NRGBA)
	alone := paint(32, 24, func(x, y int) color.NRGBA { return scenery(x+16, y+16) })
	var a, b bytes.Buffer
	require.NoError(t, Encode(context.Background(), &a, straight{part}, 80))
	require.NoError(t, Encode(context.Background(), &b, straight{alone}, 80))
	require.Equal(t, b.Bytes(), a.Bytes())
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{0, 0}, {0, 5}, {MaxSize + 1, 1}, {1, MaxSize + 1}} {
		require.ErrorIs(t, Encode(context.Background(), &bytes.Buffer{}, straight{image.NewNRGBA(image.Rect(0, 0, size[0], size[1]))}, 90), ErrSize)
	}
	var out bytes.Buffer
	require.NoError(t, Encode(context.Background(), &out, straight{paint(MaxSize, 1, scenery)}, 90))
	got, _ := planes(t, out.Bytes())
	require.Equal(t, MaxSize, got.Rect.Dx())
}

func FuzzEncode(f *testing.F) {
	f.Add(uint8(17), uint8(5), 90, uint64(1), []byte{255, 0, 7})
	f.Fuzz(func(t *testing.T, width, height uint8, quality int, seed uint64, data []byte) {
		w, h := int(width)+1, int(height)+1
		rough := noise(seed)
		img := paint(w, h, func(x, y int) color.NRGBA {
			if len(data) == 0 {
				return rough(x, y)
			}
			v := data[(x/3+y/5*w)%len(data)]
			return color.NRGBA{v, v ^ data[x%len(data)], data[y%len(data)], v | data[0]}
		})
		var out bytes.Buffer
		require.NoError(t, Encode(context.Background(), &out, straight{img}, quality))
		got, alpha := planes(t, out.Bytes())
		require.Equal(t, image.Rect(0, 0, w, h), got.Rect)
		if alpha != nil {
			require.Equal(t, alphaOf(straight{img}), alpha)
		}
	})
}
