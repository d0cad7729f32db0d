package dispatch

import (
	"testing"
	"time"

	"github.com/comfyhub/comfyhub/system/network/loopback"
)

func TestMain(m *testing.M) { loopback.Main(m) }

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel() // here, where the linter sees it
	loopback.Test(t, test)
}

// inBubbles runs a test for each case in a bubble of its own.
func inBubbles[C any](t *testing.T, cases map[string]C, test func(t *testing.T, c C)) {
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loopback.Test(t, func(t *testing.T) { test(t, c) })
		})
	}
}

func eventually(t testing.TB, so func() bool, within, every time.Duration, message ...any) {
	loopback.Eventually(t, so, within, every, message...)
}

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
