package loopback

import (
	"net/http"
	"os"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Test runs a test in virtual time. Nothing in it may wait for what is outside of the
// process, a real socket or program: the clock would stand still.
func Test(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// The clock stands still once the test has returned: whoever sleeps then must have
		// woken before.
		t.Cleanup(func() { <-time.After(3 * time.Hour) })
		test(t)
	})
}

// rareGC has Go collect garbage when five times as much is in use as after the last time. A
// fifth of what hundreds of small hubs cost is collecting their garbage.
const rareGC = 400

// Main runs the tests of a package, whose default HTTP client then reaches listeners of this
// one.
func Main(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(rareGC)
	}
	http.DefaultTransport = NewTransport(http.DefaultTransport)
	os.Exit(m.Run())
}

// odd is no multiple of anything that a program waits for.
const odd = time.Millisecond + 7*time.Nanosecond

// Eventually is require.Eventually at moments at which nothing else goes on: in a bubble,
// whatever began at a moment has come to rest before the clock goes on. So what is so then
// stays so until the test does something.
func Eventually(t testing.TB, so func() bool, within, every time.Duration, message ...any) {
	t.Helper()
	<-time.After(odd)
	require.Eventually(t, so, within, every+7*time.Nanosecond, message...)
}
