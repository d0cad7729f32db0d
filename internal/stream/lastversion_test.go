package stream

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/e2e/storedtest"
)

// Hubs of two versions share a Redis during an upgrade: what the last version
// sent between its hubs is read, and written back byte by byte.
func TestMessagesOfTheLastVersion(t *testing.T) {
	t.Parallel()
	stored := must(storedtest.LastVersion())
	kinds := map[runEventKind]bool{}
	for _, p := range stored.Published {
		if !strings.Contains(p.Channel, ":s:to:") {
			continue
		}
		// What package peers wraps it in: a word, and the length of the rest.
		_, message, found := strings.Cut(strings.TrimPrefix(string(p.Payload), "6:letter"), ":")
		require.True(t, found)
		m := must(readPeerMessage([]byte(message)))
		require.Equal(t, Key{Tenant: "ann", Client: "ann"}, m.k)
		require.Equal(t, message, string(m.appendTo(nil)))
		for _, e := range m.events {
			kinds[e.kind] = true
		}
	}
	for _, kind := range []runEventKind{runBegin, runFrame, runSynced} {
		require.True(t, kinds[kind], "the recording has events of kind %d", kind)
	}
}
