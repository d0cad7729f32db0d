package intake

import (
	"net/http"
	"sync"

	"github.com/comfyhub/comfyhub/internal/budget"
)

// windowCost is how much the HTTP/2 server keeps of the bodies on one connection before
// anybody reads them, in bytes. With HTTP/1 the system keeps it.
const windowCost = 1 << 20

// windows counts what is kept of bodies before they are read, once for each connection.
type windows struct {
	mu sync.Mutex
	of map[string]*window // by caller and connection
}

// window is what one connection may have sent ahead.
type window struct {
	held     *budget.Holder
	taken    int64
	requests int
}

// enter counts for a request that has a body; leave must be called after it. It reports
// whether there is room.
func (w *windows) enter(b *budget.Budget, r *http.Request, share string) (leave func(), ok bool) {
	if r.ProtoMajor < 2 {
		return func() {}, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := share + " " + r.RemoteAddr
	own := w.of[key]
	if own == nil {
		own = &window{held: b.Open(share, nil)}
	}
	need := windowCost - own.taken
	if r.ContentLength > 0 {
		need = min(need, r.ContentLength)
	}
	if !own.held.Take(budget.Memory, need) {
		if own.requests == 0 {
			own.held.Close()
		}
		return nil, false
	}
	if w.of == nil {
		w.of = map[string]*window{}
	}
	w.of[key] = own
	own.taken += need
	own.requests++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if own.requests--; own.requests == 0 {
			own.held.Close()
			delete(w.of, key)
		}
	}, true
}
