package hub

import (
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/comfyhub/comfyhub/system/network/loopback"
)

func TestMain(m *testing.M) {
	http.DefaultTransport = loopback.NewTransport(http.DefaultTransport)
	os.Exit(m.Run())
}

// inBubble runs a test in virtual time, beside others. Nothing in it may wait for what is
// outside of the process, a real socket or program: the clock would stand still.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	virtually(t, test)
}

// virtually is inBubble without others beside it.
func virtually(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// The clock stands still once the test has returned: whoever sleeps then must have
		// woken before.
		t.Cleanup(func() { <-time.After(3 * time.Hour) })
		test(t)
	})
}
