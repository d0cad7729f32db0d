package picture

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/tiff"
)

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
	release, err := g.AcquireHeader(t.Context(), "greedy")
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		_, err := g.AcquireHeader(ended, "greedy")
		waiting <- err
	}()
	other, err := g.AcquireHeader(t.Context(), "modest")
	require.NoError(t, err)
	other()
	cancel()
	require.ErrorIs(t, <-waiting, context.Canceled)
	release()
}
