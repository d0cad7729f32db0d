package hub

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/comfyhub/comfyhub/system/network/loopback"
)

func TestMain(m *testing.M) {
	http.DefaultTransport = loopback.NewTransport(http.DefaultTransport)
	os.Exit(m.Run())
}

// inBubble runs a test in virtual time, beside others.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	loopback.Test(t, test)
}

func eventually(t testing.TB, so func() bool, within, every time.Duration, message ...any) {
	t.Helper()
	loopback.Eventually(t, so, within, every, message...)
}
