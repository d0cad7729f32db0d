package hub

import (
	"runtime"
	"testing"
	"time"
	"weak"
)

// A hub that is closed is garbage: a configuration that is loaded again and again makes many.
func TestClosedHubIsForgotten(t *testing.T) {
	var closed weak.Pointer[Hub]
	t.Run("one", func(t *testing.T) {
		b := newBench(t, 1)
		b.finished(b.submit(picture(1), "ann"))
		b.get("/object_info")
		b.get("/")
		closed = weak.Make(b.hub)
	})
	eventually(t, func() bool {
		runtime.GC()
		return closed.Value() == nil
	}, time.Minute, 100*time.Millisecond)
}
