package hub

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// noise is text that hardly compresses.
func noise(size int) string {
	raw := make([]byte, size/2)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

// kindOf is the type of the error that a prompt was refused with.
func kindOf(t testing.TB, answer []byte) string {
	t.Helper()
	var refused struct{ Error struct{ Type string } }
	require.NoError(t, json.Unmarshal(answer, &refused), string(answer))
	return refused.Error.Type
}

// Few large prompts fill the queue as many small ones do.
func TestQueueIsFullOfBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, func(b *bench) { b.settings.MaxQueueSize = 64 << 10 })
	running := b.submit(endless(1), "ann")
	require.Eventually(t, func() bool { return started(b) == 1 }, time.Minute, 5*time.Millisecond)
	large := func(n int) (int, []byte) {
		return b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"note": %q}}`, picture(n), noise(20<<10)))
	}
	accepted := 0
	status, answer := http.StatusOK, []byte(nil)
	for ; status == http.StatusOK && accepted < 10; accepted++ {
		status, answer = large(accepted)
	}
	require.Equal(t, http.StatusTooManyRequests, status, string(answer))
	require.Equal(t, "queue_full", kindOf(t, answer))
	jobs, size, err := b.hub.queue.Waiting(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, accepted-1, jobs)
	require.LessOrEqual(t, size, int64(64<<10))
	b.submit(picture(99), "bob") // a small one has room
	b.post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, running))
}
