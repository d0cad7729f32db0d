package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An agent finds servers at ports that only their command lines tell.
func TestPortOf(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]int{
		"python main.py --port 9001":                                   9001,
		"/opt/venv/bin/python3 /opt/ComfyUI/main.py --cpu --port=9002": 9002,
		"python main.py --listen --port 8190 --cuda-device 1":          8190,
		"python main.py":              0, // the default is looked at anyway
		"python main.py --port":       0,
		"python main.py --port 70000": 0,
		"python main.py --port -1":    0,
		"python other.py --port 9003": 0,
		"":                            0,
	} {
		require.Equal(t, want, portOf(strings.ReplaceAll(command, " ", "\x00")), command)
	}
}
