package intake

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/comfyhub/comfyhub/internal/budget"
)

const (
	// arrivalCost is the memory that a request with a body needs until its last byte
	// is there, besides what is kept of the body: buffers and stacks.
	arrivalCost = 16 << 10
	// grace and minRate (bytes per second) are the minimum speed of a sender: after
	// the grace period, the whole body may not have taken longer than at that rate.
	// A phone on a bad connection is faster.
	grace   = 30 * time.Second
	minRate = 8 << 10
	// maxSilence is how long a sender may send nothing, however fast it was before.
	maxSilence = 2 * time.Minute
)

// Guard bounds the time in which a request's body may arrive, whoever reads it, and
// what is kept of all bodies while they arrive; share is the sender. Whoever reads the
// body of the returned request and counts nothing by itself keeps all of it on disk, as
// far as the budget knows. done must be called once the request has been answered. If a
// body is cut off, its reader gets ErrSlow, or ErrBusy if that made room for others.
// Errors: ErrBusy.
func (in *Intake) Guard(w http.ResponseWriter, r *http.Request, share string) (guarded *http.Request, done func(), err error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		held := in.budget.Open(share, nil)
		return r.WithContext(budget.With(r.Context(), held)), held.Close, nil
	}
	g := &guardedBody{body: r.Body, control: http.NewResponseController(w)}
	g.held = in.budget.Open(share, g.cut)
	leave, ok := in.ahead.enter(in.budget, r, share)
	if !ok || !g.held.Take(budget.Memory, arrivalCost) {
		if ok {
			leave()
		}
		g.held.Close()
		return nil, nil, ErrBusy
	}
	r = r.WithContext(budget.With(r.Context(), g.held))
	r.Body, g.request = g, r
	return r, func() {
		leave()
		g.held.Close()
	}, nil
}

// guardedBody is a body with a minimum speed.
type guardedBody struct {
	request *http.Request
	body    io.ReadCloser
	control *http.ResponseController
	held    *budget.Holder
	read    int64
	waited  time.Duration // for the sender; a slow reader is not the sender's fault
}

// cut ends the reading, so that there is room for others.
func (g *guardedBody) cut() { _ = g.control.SetReadDeadline(time.Unix(1, 0)) }

// Read implements io.Reader.
func (g *guardedBody) Read(p []byte) (int, error) {
	left := min(grace+time.Duration(g.read/minRate)*time.Second-g.waited, maxSilence)
	if left <= 0 {
		return 0, ErrSlow
	}
	begin := time.Now()
	// If the server has no deadlines, the check above still ends it.
	_ = g.control.SetReadDeadline(begin.Add(left))
	g.held.Wait()
	if g.held.Dropped() { // perhaps before the deadline was set
		return 0, ErrBusy
	}
	n, err := g.body.Read(p)
	g.held.Go()
	g.waited += time.Since(begin)
	g.read += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		// The connection lives on after a complete body. After any other end it
		// does not, because the server would wait for the rest of the body.
		_ = g.control.SetReadDeadline(time.Time{})
		g.held.Give(budget.Memory, arrivalCost)
	case errors.Is(err, os.ErrDeadlineExceeded) && g.held.Dropped():
		return 0, ErrBusy
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = ErrSlow
	}
	if !g.held.Relayed() && !g.held.Await(g.request.Context(), budget.Disk, int64(n)) {
		return 0, ErrBusy
	}
	return n, err
}

// Close implements io.Closer.
func (g *guardedBody) Close() error { return g.body.Close() }
