package queue

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Memory for a stored body is allocated by its size before it is read. A short
// body must not get the memory of the largest one.
func TestSizeOfStoredBodies(t *testing.T) {
	t.Parallel()
	c, err := newCodec()
	require.NoError(t, err)
	for _, size := range []int{0, 1, 10, 100, 200, 255, 256, 300, 1000, 100_000, 1 << 20, 3 << 20} {
		stored := c.encodeBody(job.Body{Prompt: []byte(strings.Repeat("x", size))})
		got := unpackedSize(stored)
		require.GreaterOrEqual(t, got, int64(size))
		require.LessOrEqual(t, got, int64(size)+maxBlock+1024, "a body of %d bytes", size)
	}
	require.EqualValues(t, maxUnpacked, unpackedSize([]byte("no frame")))
}

// A trace is a part of the body, which hubs that know nothing of it skip. Without one the body
// is what it was before, byte for byte.
func TestTraceInAStoredBody(t *testing.T) {
	t.Parallel()
	c, err := newCodec()
	require.NoError(t, err)
	with := job.Body{Prompt: []byte("{}"), Extra: []byte("{}"), Outputs: []string{"1"}, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	got, err := c.decodeBody(c.encodeBody(with))
	require.NoError(t, err)
	require.Equal(t, with, got)
	with.Trace = ""
	data, err := c.expand(c.encodeBody(with))
	require.NoError(t, err)
	require.Equal(t, "\x01\x02{}\x02\x02{}\x03\x011", string(data))
}
