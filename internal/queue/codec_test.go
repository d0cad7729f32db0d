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
