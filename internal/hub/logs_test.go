package hub

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/stream"
)

// Whoever reads the log and is connected goes on reading it, whatever number of
// client ids somebody makes up.
func TestLogReadersAreNotPushedOut(t *testing.T) {
	t.Parallel()
	var l logReaders
	reader := stream.Key{Tenant: "default", Client: "reader"}
	connected := func(k stream.Key) bool { return k == reader }
	require.True(t, l.set(reader, true, connected))
	for n := range 3 * maxLogReaders {
		l.set(stream.Key{Tenant: "default", Client: fmt.Sprint(n)}, true, connected)
		require.LessOrEqual(t, len(l.all()), maxLogReaders)
	}
	require.Contains(t, l.all(), reader)
	everybody := func(stream.Key) bool { return true }
	for n := range 3 * maxLogReaders {
		l.set(stream.Key{Tenant: "default", Client: fmt.Sprint("c", n)}, true, everybody)
		require.LessOrEqual(t, len(l.all()), maxLogReaders)
	}
	require.Contains(t, l.all(), reader)
	l.set(reader, false, everybody)
	require.NotContains(t, l.all(), reader)
}
