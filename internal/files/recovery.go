package files

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/notebook"
	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// settleFor is how long a name may still be put back after Redis was restarted or replaced: each hub
	// puts back those that it has given as soon as it reaches Redis again.
	settleFor = 2 * time.Second
	// settlePoll is how often it is looked for meanwhile.
	settlePoll = 50 * time.Millisecond
)

// Recovery keeps one law: a name that was given is not lost with the last writes of a Redis that was
// restarted or replaced.
type Recovery struct {
	db     *redis.DB
	keys   keys
	blobs  blobs
	copies *copies // nil with the embedded server
	log    *slog.Logger
	// turn is held while Redis is being asked.
	turn *semaphore.Weighted
	seen string // the last incarnation; "" before the first
	// settled is until when hubs put back what the last change of it has lost.
	settled atomic.Pointer[time.Time]
}

// Heal puts back the names given by this process within the last minute that Redis has lost, if
// Redis was restarted or replaced since the last call. After Recall, the names of the process before
// count too, and its last call. Call it at the start and from time to time; a name that is missing is
// looked for at once. A name that now belongs to another file stays with that file.
func (r *Recovery) Heal(ctx context.Context) error {
	if r.copies == nil {
		return nil
	}
	if err := r.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer r.turn.Release(1)
	now, err := r.db.Incarnation(ctx)
	if err != nil {
		return fmt.Errorf("files: heal: %w", err)
	}
	if now == r.seen || r.seen == "" {
		r.saw(now)
		return nil
	}
	until := time.Now().Add(settleFor)
	r.settled.Store(&until)
	restored := 0
	for _, c := range r.copies.list() {
		done, err := r.restore(ctx, c)
		if errors.Is(err, redis.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		if err != nil { // something is wrong with this one; the others go on
			r.log.Error("cannot put back a name", "error", err)
		}
		if done {
			r.copies.note(c.key, c.entry) // it may be lost again
			restored++
		}
	}
	r.saw(now)
	if restored > 0 {
		r.log.Warn("Redis had lost names of files, which were put back", "names", restored)
	}
	return nil
}

// reread reads once more what Redis does not have. If it may have lost it, that is put back first, and
// another hub that has it has some time to do so.
func (r *Recovery) reread(ctx context.Context, read func() (string, error)) (string, error) {
	if r.copies == nil {
		return "", redis.Nil
	}
	now, err := r.db.Incarnation(ctx)
	if err == nil && r.copies.lacks(now) {
		err = r.Heal(ctx)
	}
	if err != nil {
		return "", err
	}
	for {
		raw, err := read()
		until := r.settled.Load()
		if !errors.Is(err, redis.Nil) || until == nil || time.Now().After(*until) {
			return raw, err
		}
		select {
		case <-time.After(settlePoll):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// saw notes that an incarnation of Redis has all names that this process knows. The caller has the
// turn.
func (r *Recovery) saw(incarnation string) {
	r.seen = incarnation
	r.copies.gaveBack(incarnation)
}

// Recall begins with the names that the process before has given, and keeps them for the next one,
// in a folder of this hub's own. Call it before anything else.
func (r *Recovery) Recall(folder string) {
	if r.copies == nil {
		return
	}
	o := notebook.Options{Dir: folder, Life: copyLife, Bytes: noteBytes, Logger: r.log}
	r.copies.book = notebook.Open(o, r.copies.recall)
	r.seen = r.copies.server
}

// Close writes what the next process needs to know. No name may be given any more.
func (r *Recovery) Close() {
	if r.copies != nil {
		r.copies.book.Close()
	}
}

// restore puts back a name if Redis has lost it. It reports whether it was lost.
func (r *Recovery) restore(ctx context.Context, c copied) (bool, error) {
	p, e := c.key.place, c.entry
	if e.Stored() {
		if err := r.blobs.hold(ctx, e.Key); err != nil {
			return false, err
		}
	}
	series, number := "", int64(0)
	if n, ok := parseNumbered(p.name); ok {
		series, number = n.prefix, n.number
	}
	known, id := "", ""
	if e.Source != nil {
		known, id = r.keys.known(c.key.tenant, *e.Source), e.Source.id()
	}
	reply, err := r.db.Run(ctx, restoreScript,
		r.keys.folder(c.key.tenant, p), r.keys.numbers(c.key.tenant, p), r.keys.folders(c.key.tenant, p.typ), p.typ, p.dir, p.name,
		e.raw, c.key.tenant, series, strconv.FormatInt(number, 10), known, id,
		rememberSources.Milliseconds(), longestRun.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("files: put back a name: %w", err)
	}
	return reply[0] == "ok", nil
}
