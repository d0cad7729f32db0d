package redistest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/comfyhub/comfyhub/internal/leaktest"
)

// Main runs the tests of a package, for its TestMain, and fails when they leave
// goroutines behind. A pool whose server went away asks for it once a second;
// one that has been closed in between notices that only after its sleep, which
// is longer than goleak waits.
func Main(m *testing.M) {
	leaktest.Main(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
