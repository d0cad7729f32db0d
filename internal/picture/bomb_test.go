package picture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/tiff"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// Of a bomb not even the header costs anything, and what it would cost is known.
func TestBombsAreKnownByTheirHeaders(t *testing.T) {
	var vp8x [18]byte
	copy(vp8x[:], "VP8X\x0a\x00\x00\x00")
	vp8x[12], vp8x[15] = 7, 7 // a canvas of 8 by 8
	for name, c := range map[string]struct {
		data []byte
		err  error // of the gate or the header
	}{
		"progressive CMYK": {craftedJPEG{width: 12500, height: 8000, sampling: []byte{0x11, 0x11, 0x11, 0x11}, progressive: true, before: adobeSegment(2)}.bytes(), ErrTooLarge},
		"16 bit PNG":       {pngOf(12500, 8000, 16, 6, false), ErrTooLarge},
		"interlaced PNG":   {pngOf(12500, 8000, 8, 6, true), ErrTooLarge},
		"lossless WebP":    {craftVP8L(16383, 10000, true), ErrTooLarge},
		"small canvas":     {riff("VP8L", craftVP8L(16383, 10000, true)[20:], vp8x[:]...), ErrFormat},
		"beyond Pillow":    {pngOf(20000, 10000, 1, 0, false), ErrBomb},
		"wide PNG":         {pngOf(1<<31-1, 1, 8, 6, false), ErrBomb},
		"wide GIF":         {[]byte("GIF89a\xff\xff\xff\xff\x00\x00\x00" + "padding"), ErrBomb},
		"large JPEG":       {craftedJPEG{width: 65535, height: 65535, sampling: []byte{0x11}, progressive: true, scans: -1}.head(), ErrBomb},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewGate(nil)
			took := allocated(func() {
				h, err := ReadHeader(bytes.NewReader(c.data), int64(len(c.data)))
				if err == nil {
					_, err = g.Acquire(context.Background(), "a", Cost(h, WebP))
				}
				require.ErrorIs(t, err, c.err)
			})
			require.Less(t, took, int64(256<<10))
		})
	}
}

// head is the file without its scans.
func (c craftedJPEG) head() []byte {
	large := c
	large.width, large.height = 8, 8
	data := large.bytes()
	at := bytes.Index(data, []byte{0xff, 0xc2, 0, 11, 8})
	binary.BigEndian.PutUint16(data[at+5:], uint16(c.height))
	binary.BigEndian.PutUint16(data[at+7:], uint16(c.width))
	return data
}

func pngOf(width, height uint32, depth, kind byte, interlaced bool) []byte {
	data := craftPNG(1, 1, depth, kind, interlaced)
	binary.BigEndian.PutUint32(data[16:], width)
	binary.BigEndian.PutUint32(data[20:], height)
	return data
}

// Each scan goes over the whole picture, so it is not the bytes that count.
func TestScansAreBounded(t *testing.T) {
	t.Parallel()
	decode := func(c craftedJPEG) error {
		data := c.bytes()
		h, err := ReadHeader(bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		_, err = Decode(t.Context(), bytes.NewReader(data), h)
		return err
	}
	c := craftedJPEG{width: 64, height: 64, sampling: []byte{0x11, 0x11, 0x11}, progressive: true, before: jfifSegment, scans: 60}
	require.NoError(t, decode(c), "more scans than any encoder writes")
	c.scans = 200
	require.ErrorIs(t, decode(c), ErrBomb)
	baseline := craftedJPEG{width: 64, height: 64, sampling: []byte{0x11}}
	require.NoError(t, decode(baseline))
	once := baseline.bytes()
	at := bytes.Index(once, []byte{0xff, 0xda})
	again := bytes.Clone(once[:at])
	for range 20 {
		again = append(again, once[at:len(once)-2]...)
	}
	h, err := ReadHeader(bytes.NewReader(again), int64(len(again)))
	require.NoError(t, err)
	_, err = Decode(t.Context(), bytes.NewReader(again), h)
	require.ErrorIs(t, err, ErrBomb)
	// What looks like scans in other segments is none.
	c.scans, c.before = 0, append(bytes.Clone(jfifSegment), segment(0xe2, strings.Repeat("\xff\xda", 5000))...)
	require.NoError(t, decode(c))
	require.Equal(t, 100, maxScans(1))
	require.Equal(t, 24, maxScans(100_000_000))
	// A segment behind the first scan that makes of it what was not counted.
	c.scans = 0
	c.before = nil
	require.NoError(t, decode(c))
	data := c.bytes()
	at = bytes.LastIndex(data, []byte{0xff, 0xda})
	data = bytes.Join([][]byte{data[:at], adobeSegment(0), data[at:]}, nil)
	h = must.Get(ReadHeader(bytes.NewReader(data), int64(len(data))))(t)
	_, err = Decode(t.Context(), bytes.NewReader(data), h)
	require.ErrorIs(t, err, ErrBomb)
}

// leaving hangs up after some bytes were read.
type leaving struct {
	io.Reader
	left int
	stop context.CancelFunc
	read int
}

func (l *leaving) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	l.read += n
	if l.read > l.left {
		l.stop()
	}
	return n, err
}

func TestDecodingStopsWhenNobodyWaits(t *testing.T) {
	t.Parallel()
	for name, data := range kinds(t, 700, 500) {
		if len(data) < 100<<10 {
			continue
		}
		h, err := ReadHeader(bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		from := &leaving{Reader: bytes.NewReader(data), left: 1000, stop: stop}
		_, err = Decode(ctx, from, h)
		stop()
		if h.Format == "tiff" && err == nil {
			continue // one read may have been all
		}
		require.ErrorIs(t, err, context.Canceled, name)
		require.Less(t, from.read, len(data), name)
	}
	data := craftPNG(700, 500, 8, 6, false)
	h := must.Get(ReadHeader(bytes.NewReader(data), int64(len(data))))(t)
	img := must.Get(Decode(t.Context(), bytes.NewReader(data), h))(t)
	gone, stop := context.WithCancel(t.Context())
	stop()
	for _, form := range []Form{WebP, FlatWebP, JPEG, RGB, Alpha} {
		require.ErrorIs(t, Encode(gone, io.Discard, img, form, 90), context.Canceled)
	}
	require.ErrorIs(t, EncodeMasked(gone, io.Discard, img, AlphaOf(img)), context.Canceled)
}

var errDisk = errors.New("disk")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errDisk }
func (full) Read([]byte) (int, error)  { return 0, errDisk }

func (full) ReadAt([]byte, int64) (int, error) { return 0, errDisk }

// Trouble of a disk is no trouble of the picture.
func TestErrorsOfOthersStayTheirOwn(t *testing.T) {
	t.Parallel()
	_, err := ReadHeader(full{}, 100)
	require.Equal(t, errDisk, err)
	data := craftPNG(7, 5, 8, 6, false)
	h := must.Get(ReadHeader(bytes.NewReader(data), int64(len(data))))(t)
	_, err = Decode(t.Context(), full{}, h)
	require.Equal(t, errDisk, err)
	img := must.Get(Decode(t.Context(), bytes.NewReader(data), h))(t)
	err = Encode(t.Context(), full{}, img, WebP, 90)
	require.ErrorIs(t, err, errDisk)
	require.NotErrorIs(t, err, ErrFormat)
	for _, data := range [][]byte{nil, {0}, []byte("\xff\xd8\xff"), []byte("\x89PNG\r\n\x1a\n"), []byte("RIFF    WEBPVP8X"), []byte("II*\x00"), []byte("BM"), []byte("GIF89a")} {
		_, err = ReadHeader(bytes.NewReader(data), int64(len(data)))
		require.ErrorIs(t, err, ErrFormat, "%q", data)
	}
}

// A TIFF whose directory or strips lie far beyond its end takes no more memory than
// it has bytes: its decoder reads streams in steps of 10 MB. It is not parallel,
// since it counts what the process allocates.
func TestTIFFPointsFarAway(t *testing.T) {
	data := append([]byte("II*\x00"), 0, 0, 0, 2) // the directory is at 32 MB
	took := allocated(func() {
		_, err := ReadHeader(bytes.NewReader(data), int64(len(data)))
		require.ErrorIs(t, err, ErrFormat)
	})
	require.Less(t, took, int64(1<<20))
}

// Whatever a file says, decoding it takes no more than its header tells.
func FuzzHeader(f *testing.F) {
	for _, data := range kinds(f, 20, 12) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ReadHeader(bytes.NewReader(data), int64(len(data)))
		if err != nil || h.decoding > 8<<20 {
			return
		}
		took := allocated(func() {
			img, err := Decode(t.Context(), bytes.NewReader(data), h)
			if err == nil {
				_ = Encode(t.Context(), io.Discard, img, FlatWebP, 90)
			}
		})
		if !raceDetector {
			const others = 256 << 10 // what the fuzzer itself may allocate meanwhile
			require.LessOrEqual(t, took, Cost(h, FlatWebP)+others)
		}
	})
}

// Metadata is read past only so far, whatever the format.
func TestMetadataIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("much computing, one thing after the other: nothing for the race detector")
	}
	const size = 40 << 20
	png := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x08\x00\x00\x00\x08\x08\x06\x00\x00\x00\x00\x00\x00\x00")
	chunk := append(binary.BigEndian.AppendUint32(bytes.Clone(png), size), "tEXt"...)
	for name, data := range map[string]string{
		"a long chunk":   string(chunk) + strings.Repeat("x", size),
		"many chunks":    string(png) + strings.Repeat("\x00\x00\x00\x00tEXtcrc.", size/12),
		"many segments":  "\xff\xd8" + strings.Repeat("\xff\xe1\xff\xff"+strings.Repeat("x", 65533), size/65537),
		"no marker ever": "\xff\xd8" + strings.Repeat("x", size),
	} {
		r := strings.NewReader(data)
		_, err := ReadHeader(r, int64(len(data)))
		require.ErrorIs(t, err, ErrBomb, name)
		require.LessOrEqual(t, len(data)-r.Len(), maxHeader, name)
	}
}

// readAt counts what is read at any place.
type readAt struct {
	Source

	n int
}

func (r *readAt) ReadAt(p []byte, off int64) (int, error) {
	r.n += len(p)
	return r.Source.ReadAt(p, off)
}

// Of a TIFF, too, only the header is read, which the encoder puts at its end.
func TestHeaderOfATIFF(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, tiff.Encode(&out, image.NewNRGBA(image.Rect(0, 0, 1000, 700)), nil))
	r := &readAt{Source: bytes.NewReader(out.Bytes())}
	h, err := ReadHeader(r, int64(out.Len()))
	require.NoError(t, err)
	require.Equal(t, [2]int{1000, 700}, [2]int{h.Width, h.Height})
	require.Less(t, r.n, 1<<10)

	// As many entries as there can be, again and again, are no header.
	long := append([]byte("II*\x00\x08\x00\x00\x00\xff\xff"), make([]byte, 12*0xffff)...)
	r = &readAt{Source: bytes.NewReader(long)}
	_, err = ReadHeader(r, int64(len(long)))
	require.Error(t, err)
	require.LessOrEqual(t, r.n, maxTIFFHeader)
}

// One caller reads one header at a time.
func TestHeadersTakeTurns(t *testing.T) {
	t.Parallel()
	g := NewGate(nil)
	release := must.Get(g.AcquireHeader(t.Context(), "greedy"))(t)
	ended, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() { _, err := g.AcquireHeader(ended, "greedy"); waiting <- err }()
	other := must.Get(g.AcquireHeader(t.Context(), "modest"))(t)
	other()
	cancel()
	require.ErrorIs(t, <-waiting, context.Canceled)
	release()
}

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
			decoding := allocated(func() { _, err = Decode(t.Context(), bytes.NewReader(data), h) })
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
