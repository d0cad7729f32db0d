package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/stage"
)

// A large file passes through without being held in memory.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *stage.Options) {
		o.Config += "  large: {workflow: large.json, inputs: {seed: 1.color, count: \"-\", size: \"-\"}, max_seed: 16777215}\n"
	})
	ada := r.Fake.Person(11, "en")
	asked, _ := ada.Say("/large")
	large := r.waitFor(ada, "a large file", answering(asked, func(m fakebot.Message) bool { return m.FromBot && m.Kind == "document" }))
	require.Greater(t, large.File.Size, int64(40<<20))
	memory, _ := r.Bridge.Memory()
	t.Logf("the bridge has %d MB after %d MB went through", memory>>20, large.File.Size>>20)
	require.Less(t, memory, int64(80<<20))
}
