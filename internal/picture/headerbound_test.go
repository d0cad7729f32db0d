package picture

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Metadata is read past only so far, whatever the format.
func TestMetadataIsBounded(t *testing.T) {
	t.Parallel()
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
