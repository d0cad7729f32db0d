package shell

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// On a terminal one line changes and never wraps; the last state stays.
func TestScreen(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newScreen(&out)
	s.width = func() int { return 40 }
	eta := 100.0
	s.show(Job{ID: "j", Status: StatusQueued, Position: new(int)})
	s.show(Job{ID: "j", Status: StatusProcessing, Progress: 0.5, ETA: &eta})
	s.say("a line")
	s.show(Job{ID: "j", Status: StatusFailed, Error: strings.Repeat("x", 50)})
	require.Equal(t, "\r\x1b[Kqueued, next\r\x1b[K[############------------] processing 5\na line\n\r\x1b[Kfailed: "+strings.Repeat("x", 50)+"\n", out.String())
}
