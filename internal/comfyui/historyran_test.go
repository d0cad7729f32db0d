package comfyui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// How long a run took is what its server says, if that makes sense.
func TestRan(t *testing.T) {
	t.Parallel()
	const start, end = `["execution_start", {"timestamp": 1000}]`, `["execution_success", {"timestamp": 61000}]`
	for messages, ran := range map[string]time.Duration{
		start + "," + end: time.Minute,
		start + `, ["execution_cached", {"timestamp": 2000}], ` + end: time.Minute,
		start + `, ["execution_error", {"timestamp": 3000}]`:          2 * time.Second,
		start: 0, end: 0, end + "," + `["execution_start", {"timestamp": 70000}]`: 0,
		start + `, ["execution_success", {"timestamp": "61000"}]`:             0,
		start + `, ["execution_success", {"timestamp": 9.2e18}]`:              0,
		start + `, ["execution_success", {"timestamp": 9223372036854775807}]`: 0,
		start + `, ["execution_success", []]`:                                 0,
		"":                                                                    0, "1, [2], [[], {}]": 0,
	} {
		e, _ := ParseEntry([]byte(`{"status": {"messages": [` + messages + `]}}`))
		require.Equal(t, ran, e.Ran(), messages)
	}
}
