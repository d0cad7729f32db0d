package intake

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	// maxArriving bounds the bodies that arrive at the same time, and shareArriving
	// those of one sender.
	maxArriving   = 4096
	shareArriving = maxArriving / 4
	// grace and minRate (bytes per second) are the minimum speed of a sender: after
	// the grace period, the whole body may not have taken longer than at that rate.
	// A phone on a bad connection is faster.
	grace   = 30 * time.Second
	minRate = 8 << 10
)

// Guard bounds the time in which a request's body may arrive, whoever reads it, and
// the number of bodies that arrive at the same time; share is the sender. done must
// be called once the request has been answered. If a body is cut off, its reader
// gets ErrSlow. Errors: ErrBusy.
func (in *Intake) Guard(w http.ResponseWriter, r *http.Request, share string) (done func(), err error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return func() {}, nil
	}
	if !in.arrive.take(share, 1) {
		return nil, ErrBusy
	}
	g := &guarded{body: r.Body, control: http.NewResponseController(w), leave: sync.OnceFunc(func() { in.arrive.give(share, 1) })}
	r.Body = g
	return g.leave, nil
}

// guarded is a body with a minimum speed.
type guarded struct {
	body    io.ReadCloser
	control *http.ResponseController
	leave   func()
	read    int64
	waited  time.Duration // for the sender; a slow reader is not the sender's fault
}

// Read implements io.Reader.
func (g *guarded) Read(p []byte) (int, error) {
	left := grace + time.Duration(g.read/minRate)*time.Second - g.waited
	if left <= 0 {
		return 0, ErrSlow
	}
	begin := time.Now()
	// If the server has no deadlines, the check above still ends it.
	_ = g.control.SetReadDeadline(begin.Add(left))
	n, err := g.body.Read(p)
	g.waited += time.Since(begin)
	g.read += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		// The connection lives on after a complete body. After any other end it
		// does not, because the server would wait for the rest of the body.
		_ = g.control.SetReadDeadline(time.Time{})
		g.leave()
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = ErrSlow
	}
	return n, err
}

// Close implements io.Closer.
func (g *guarded) Close() error { return g.body.Close() }
