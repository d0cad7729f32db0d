package peers

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/stream"
)

// Each publication of the last version's hubs is understood.
func TestMessagesOfTheLastVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../e2e/testdata/stored/lastversion.json")
	require.NoError(t, err)
	var stored struct {
		Published []struct{ Channel, Payload string }
	}
	require.NoError(t, json.Unmarshal(text, &stored))
	kinds := map[stream.NoticeKind]bool{}
	for _, p := range stored.Published {
		if !strings.Contains(p.Channel, ":s:") {
			continue // the queue's
		}
		payload := p.Payload
		if code, found := strings.CutPrefix(payload, "base64:"); found {
			data, err := base64.StdEncoding.DecodeString(code)
			require.NoError(t, err)
			payload = string(data)
		}
		notice, ok := readNotice(payload)
		require.True(t, ok, "%s: %q", p.Channel, payload)
		kinds[notice.Kind] = true
	}
	require.Len(t, kinds, 2, "a claim and messages")
}
