package instance

import (
	"testing"

	"github.com/comfyhub/comfyhub/system/network/loopback"
)

func TestMain(m *testing.M) { loopback.Main(m) }

func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel() // here, where the linter sees it
	loopback.Test(t, test)
}

// sure returns the result of a call that does not fail.
func sure[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
