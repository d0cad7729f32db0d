package stream

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/coder/websocket"
)

// write sends what is due until ctx ends or the socket fails. The first message is
// always the status with the sid.
func (w *socket) write(ctx context.Context) error {
	n, _ := w.tally.read(ctx) // if unknown, the client is sent 0
	if err := w.put(ctx, outgoing{data: statusMessage(n, w.sid)}); err != nil {
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
func (w *socket) due(ctx context.Context) error {
	w.mu.Lock()
	if len(w.replies) > 0 {
		reply := w.replies[0]
		w.replies = w.replies[1:]
		w.mu.Unlock()
		return w.text(ctx, reply)
	}
	if w.status && w.queue.len() == 0 && w.adapter.late == nil && time.Since(w.lastStatus) >= w.interval {
		w.status = false
		w.mu.Unlock()
		return w.sendStatus(ctx, false)
	}
	it, ok := w.queue.pop()
	w.mu.Unlock()
	if !ok {
		return nil
	}
	defer it.release()
	switch {
	case it.probe != 0:
		w.mu.Lock()
		w.probe = it.probe
		w.mu.Unlock()
		w.ping()
		runtime.Gosched() // so that the ping normally comes before what follows
		return nil
	case it.status:
		if err := w.flush(ctx); err != nil {
			return err
		}
		w.mu.Lock()
		w.status = false // the status below is as new
		w.mu.Unlock()
		if it.of == nil || !it.of.counted {
			w.tally.touch()
		}
		return w.sendStatus(ctx, true)
	case it.mark != 0:
		if err := w.flush(ctx); err != nil {
			return err
		}
		w.mu.Lock()
		w.mark = it.mark
		w.mu.Unlock()
		w.ping()
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
		w.mu.Lock()
		if !w.muted { // otherwise it may not have been written
			w.told, w.toldAt = it.tells, time.Now()
		}
		w.mu.Unlock()
	}
	return nil
}

// sendStatus sends the number of the caller's jobs. If the number is unknown, it sends a status
// only if the client is waiting for one.
func (w *socket) sendStatus(ctx context.Context, always bool) error {
	if w.silent() {
		return nil
	}
	version := w.fanout.version(w)
	n, err := w.tally.read(ctx)
	if err != nil && !always {
		return nil
	}
	w.lastStatus = time.Now()
	w.fanout.heard(w, version)
	return w.text(ctx, statusMessage(n, ""))
}

// frame writes a message of a run in the form that the client asked for.
func (w *socket) frame(ctx context.Context, f *frame) error {
	data, err := f.load()
	if err != nil {
		return err
	}
	if imageEvent(f, data) != 0 || f.kind == Note && w.browser {
		w.awaitFlags(ctx)
	}
	w.mu.Lock()
	metadata := w.metadata
	w.mu.Unlock()
	if f.kind == Note && !(metadata && w.browser) {
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
func (w *socket) awaitFlags(ctx context.Context) {
	wait := flagGrace - time.Since(w.opened)
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.settled:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// flush writes the message that waits for the next one.
func (w *socket) flush(ctx context.Context) error {
	for _, out := range w.adapter.flush() {
		if err := w.send(ctx, out); err != nil {
			return err
		}
	}
	return nil
}

// pending reports whether there is something to write right now.
func (w *socket) pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.len() > 0 || len(w.replies) > 0
}

// rest waits until there is something to write, and keeps an idle socket alive.
func (w *socket) rest(ctx context.Context) error {
	now := time.Now()
	w.mu.Lock()
	muted, status := w.muted, w.status
	w.mu.Unlock()

	wake := w.lastWrite.Add(w.silence)
	switch {
	case w.adapter.late != nil: // a status waits for it too
		wake = earlier(wake, w.lateSince.Add(lateGrace))
	case status:
		wake = earlier(wake, w.lastStatus.Add(w.interval))
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
	case <-w.wake:
		return nil
	case now = <-alarm:
	}
	if w.adapter.late != nil && now.Sub(w.lateSince) >= lateGrace {
		return w.flush(ctx)
	}
	if now.Sub(w.lastWrite) < w.silence {
		return nil // a status is due
	}
	if w.silent() {
		return nil
	}
	if w.browser {
		w.lastWrite = now
		w.ping()
		return nil
	}
	w.tally.touch()
	return w.sendStatus(ctx, true)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// text writes a JSON message.
func (w *socket) text(ctx context.Context, data []byte) error {
	return w.send(ctx, outgoing{data: data})
}

// send writes one message, unless a newer socket has taken over.
func (w *socket) send(ctx context.Context, out outgoing) error {
	if w.silent() {
		return nil
	}
	return w.put(ctx, out)
}

// put writes one message.
func (w *socket) put(ctx context.Context, out outgoing) error {
	w.lastWrite = time.Now()
	w.observe.Sent(len(out.data))
	kind := websocket.MessageText
	if out.binary {
		kind = websocket.MessageBinary
	}
	if len(out.data) <= chunk {
		return w.conn.Write(ctx, kind, out.data)
	}
	to, err := w.conn.Writer(ctx, kind)
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
