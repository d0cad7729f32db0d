package peers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/e2e/storedtest"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Each publication of the last version's hubs is understood.
func TestMessagesOfTheLastVersion(t *testing.T) {
	t.Parallel()
	stored, err := storedtest.LastVersion()
	require.NoError(t, err)
	kinds := map[stream.NoticeKind]bool{}
	for _, p := range stored.Published {
		if !strings.Contains(p.Channel, ":s:") {
			continue // the queue's
		}
		notice, ok := readNotice(string(p.Payload))
		require.True(t, ok, "%s: %q", p.Channel, p.Payload)
		kinds[notice.Kind] = true
	}
	require.Len(t, kinds, 2, "a claim and messages")
}
