package stream

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/coder/websocket"
)

// writer empties the queue of a socket, in one goroutine: it alone writes messages, in their order.
type writer struct {
	socket  *socket
	observe Observer

	adapter    adapter
	ended      endedJobs
	lastWrite  time.Time
	lastStatus time.Time
	lateSince  time.Time
}

// run sends what is due until ctx ends or the socket fails. The first message is
// always the status with the sid.
func (w *writer) run(ctx context.Context) error {
	n, _ := w.socket.tally.read(ctx) // if unknown, the client is sent 0
	if err := w.put(ctx, outgoing{data: statusMessage(n, w.socket.sid)}); err != nil {
		return err
	}
	for {
		if err := w.due(ctx); err != nil {
			return err
		}
		if w.pending() {
			continue
		}
		if err := w.rest(ctx); err != nil {
			return err
		}
	}
}

// due writes one thing: an answer to this socket, the oldest item, or a status
// whose time has come. A status waits for everything queued before it: its number
// is the current one, and clients that read 0 leave without the last pictures.
func (w *writer) due(ctx context.Context) error {
	w.socket.mu.Lock()
	if len(w.socket.replies) > 0 {
		reply := w.socket.replies[0]
		w.socket.replies = w.socket.replies[1:]
		w.socket.mu.Unlock()
		return w.text(ctx, reply)
	}
	if w.socket.status && w.socket.queue.len() == 0 && w.adapter.late == nil && time.Since(w.lastStatus) >= w.socket.interval {
		w.socket.status = false
		w.socket.mu.Unlock()
		return w.sendStatus(ctx, false)
	}
	it, ok := w.socket.queue.pop()
	w.socket.mu.Unlock()
	if !ok {
		return nil
	}
	defer it.release()
	switch {
	case it.probe != 0:
		w.socket.mu.Lock()
		w.socket.probe = it.probe
		w.socket.mu.Unlock()
		w.socket.ping()
		runtime.Gosched() // so that the ping normally comes before what follows
		return nil
	case it.status:
		if err := w.flush(ctx); err != nil {
			return err
		}
		w.socket.mu.Lock()
		w.socket.status = false // the status below is as new
		w.socket.mu.Unlock()
		if it.of == nil || !it.of.counted {
			w.socket.tally.touch()
		}
		return w.sendStatus(ctx, true)
	case it.mark != 0:
		if err := w.flush(ctx); err != nil {
			return err
		}
		w.socket.mu.Lock()
		w.socket.mark = it.mark
		w.socket.mu.Unlock()
		w.socket.ping()
		return nil
	}
	if !w.ended.has(it.job) {
		if err := w.frame(ctx, it.frame); err != nil {
			return err
		}
	}
	if it.closes {
		w.ended.add(it.job)
	}
	w.observe.Lagged(time.Since(it.at))
	if it.tells != 0 {
		w.socket.mu.Lock()
		if !w.socket.muted { // otherwise it may not have been written
			w.socket.told, w.socket.toldAt = it.tells, time.Now()
		}
		w.socket.mu.Unlock()
	}
	return nil
}

// sendStatus sends the number of the caller's jobs. If the number is unknown, it sends a status
// only if the client is waiting for one.
func (w *writer) sendStatus(ctx context.Context, always bool) error {
	if w.socket.silent() {
		return nil
	}
	version := w.socket.fanout.version(w.socket)
	n, err := w.socket.tally.read(ctx)
	if err != nil && !always {
		return nil
	}
	w.lastStatus = time.Now()
	w.socket.fanout.heard(w.socket, version)
	return w.text(ctx, statusMessage(n, ""))
}

// frame writes a message of a run in the form that the client asked for.
func (w *writer) frame(ctx context.Context, f *frame) error {
	data, err := f.load()
	if err != nil {
		return err
	}
	if imageEvent(f, data) != 0 || f.kind == Note && w.socket.browser {
		w.awaitFlags(ctx)
	}
	w.socket.mu.Lock()
	metadata := w.socket.metadata
	w.socket.mu.Unlock()
	if f.kind == Note && !(metadata && w.socket.browser) {
		return nil // scripts take any binary frame for a picture
	}
	for _, out := range w.adapter.adapt(f, data, metadata) {
		if err := w.send(ctx, out); err != nil {
			return err
		}
	}
	w.lateSince = time.Now()
	return nil
}

// awaitFlags gives a client that has just connected a moment to say in which form it wants images.
func (w *writer) awaitFlags(ctx context.Context) {
	wait := flagGrace - time.Since(w.socket.opened)
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.socket.settled:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// flush writes the message that waits for the next one.
func (w *writer) flush(ctx context.Context) error {
	for _, out := range w.adapter.flush() {
		if err := w.send(ctx, out); err != nil {
			return err
		}
	}
	return nil
}

// pending reports whether there is something to write right now.
func (w *writer) pending() bool {
	w.socket.mu.Lock()
	defer w.socket.mu.Unlock()
	return w.socket.queue.len() > 0 || len(w.socket.replies) > 0
}

// rest waits until there is something to write, and keeps an idle socket alive.
func (w *writer) rest(ctx context.Context) error {
	now := time.Now()
	w.socket.mu.Lock()
	muted, status := w.socket.muted, w.socket.status
	w.socket.mu.Unlock()

	wake := w.lastWrite.Add(w.socket.silence)
	switch {
	case w.adapter.late != nil: // a status waits for it too
		wake = earlier(wake, w.lateSince.Add(lateGrace))
	case status:
		wake = earlier(wake, w.lastStatus.Add(w.socket.interval))
	}
	var alarm <-chan time.Time
	if !muted {
		timer := time.NewTimer(wake.Sub(now))
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.socket.wake:
		return nil
	case now = <-alarm:
	}
	if w.adapter.late != nil && now.Sub(w.lateSince) >= lateGrace {
		return w.flush(ctx)
	}
	if now.Sub(w.lastWrite) < w.socket.silence {
		return nil // a status is due
	}
	if w.socket.silent() {
		return nil
	}
	if w.socket.browser {
		w.lastWrite = now
		w.socket.ping()
		return nil
	}
	w.socket.tally.touch()
	return w.sendStatus(ctx, true)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// text writes a JSON message.
func (w *writer) text(ctx context.Context, data []byte) error {
	return w.send(ctx, outgoing{data: data})
}

// send writes one message, unless a newer socket has taken over.
func (w *writer) send(ctx context.Context, out outgoing) error {
	if w.socket.silent() {
		return nil
	}
	return w.put(ctx, out)
}

// put writes one message.
func (w *writer) put(ctx context.Context, out outgoing) error {
	w.lastWrite = time.Now()
	w.observe.Sent(len(out.data))
	kind := websocket.MessageText
	if out.binary {
		kind = websocket.MessageBinary
	}
	if len(out.data) <= chunk {
		return w.socket.conn.Write(ctx, kind, out.data)
	}
	to, err := w.socket.conn.Writer(ctx, kind)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(out.data, chunk) {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return to.Close()
}
