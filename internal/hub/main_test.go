package hub

import (
	"testing"
	"time"

	"github.com/comfyhub/comfyhub/system/network/loopback"
)

func TestMain(m *testing.M) { loopback.Main(m) }

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel() // here, where the linter sees it
	loopback.Test(t, test)
}

func eventually(t testing.TB, so func() bool, within, every time.Duration, message ...any) {
	t.Helper()
	loopback.Eventually(t, so, within, every, message...)
}
