package loopback

import (
	"testing"
	"testing/synctest"
	"time"
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
