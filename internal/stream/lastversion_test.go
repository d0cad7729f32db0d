package stream

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Hubs of two versions share a Redis during an upgrade: what the last version
// sent between its hubs is read, and written back byte by byte.
func TestMessagesOfTheLastVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../e2e/testdata/stored/lastversion.json")
	require.NoError(t, err)
	var stored struct {
		Published []struct{ Channel, Payload string }
	}
	require.NoError(t, json.Unmarshal(text, &stored))
	kinds := map[runEventKind]bool{}
	for _, p := range stored.Published {
		if !strings.Contains(p.Channel, ":s:to:") {
			continue
		}
		payload, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.Payload, "base64:"))
		require.NoError(t, err)
		// What package peers wraps it in: a word, and the length of the rest.
		_, message, found := strings.Cut(strings.TrimPrefix(string(payload), "6:letter"), ":")
		require.True(t, found)
		m, err := readPeerMessage([]byte(message))
		require.NoError(t, err)
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
