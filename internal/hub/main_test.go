package hub

import (
	"net/http"
	"os"
	"testing"

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
