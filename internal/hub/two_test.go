package hub

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Two hubs on one Redis, each with an instance that the other does not know: a
// client of one gets the end of a job that the other has run.
func TestTwoHubsShareAQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one := newBench(t, 1, func(b *bench) { b.id.Redis = server.URL() })
	two := newBench(t, 0, func(b *bench) {
		b.id.Redis = server.URL()
		// One storage for both, as it must be.
		b.id.Data = one.id.Data
		b.id.GossipBind = "localhost:0"
	})
	socket := two.dial("ann")
	id := two.submit(picture(0x00ff00), "ann")
	types := socket.until(id)
	require.Equal(t, "execution_success", types[len(types)-2])
	require.Contains(t, types, "executed")
	e, ok := two.history(id)
	require.True(t, ok)
	status, _ := two.get("/view?filename=" + e.Outputs["2"].Images[0].Filename)
	require.Equal(t, 200, status)
	require.Equal(t, 1, started(one))
	found, err := filepath.Glob(filepath.Join(one.id.Data, idPrefix+"*"))
	require.NoError(t, err)
	require.Len(t, found, 2, "each hub has an id of its own")
}
