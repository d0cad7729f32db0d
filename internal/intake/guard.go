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
	// maxArriving bounds the bodies that arrive at one moment, and shareArriving
	// those of one sender.
	maxArriving   = 4096
	shareArriving = maxArriving / 4
	// grace and minRate (bytes a second) are what a sender must keep up with:
	// after the grace the whole body may not have taken longer than at that
	// rate. A phone on a bad line is faster.
	grace   = 30 * time.Second
	minRate = 8 << 10
)

// Guard bounds the time in which the body of a request arrives, whoever reads
// it, and the number of bodies that arrive at once; share is the sender. done
// must be called when the request has been answered. A body that is cut off
// gives ErrSlow to its reader. Errors: ErrBusy.
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

// guarded is a body whose sender must keep up.
type guarded struct {
	body    io.ReadCloser
	control *http.ResponseController
	leave   func()
	read    int64
	waited  time.Duration // for the sender; a reader that takes its time is not to blame on it
}

// Read implements io.Reader.
func (g *guarded) Read(p []byte) (int, error) {
	left := grace + time.Duration(g.read/minRate)*time.Second - g.waited
	if left <= 0 {
		return 0, ErrSlow
	}
	begin := time.Now()
	// Where the server has no deadlines, the check above still ends it.
	_ = g.control.SetReadDeadline(begin.Add(left))
	n, err := g.body.Read(p)
	g.waited += time.Since(begin)
	g.read += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		// The connection lives on without it. After any other end it does not:
		// the server would wait for the rest of the body.
		_ = g.control.SetReadDeadline(time.Time{})
		g.leave()
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = ErrSlow
	}
	return n, err
}

// Close implements io.Closer.
func (g *guarded) Close() error { return g.body.Close() }
