package files

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/notebook"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// healing is what Heal knows about Redis.
type healing struct {
	// turn is held while Redis is being asked.
	turn *semaphore.Weighted
	seen string // the last incarnation; "" before the first
}

// Heal puts back the names given by this process within the last minute that Redis has lost, if
// Redis was restarted or replaced since the last call. After Recall, the names of the process before
// count too, and its last call. Call it at the start and from time to time; a name that is missing is
// looked for at once. A name that now belongs to another file stays with that file.
func (s *Store) Heal(ctx context.Context) error {
	if s.copies == nil {
		return nil
	}
	if err := s.heal.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.heal.turn.Release(1)
	now, err := s.db.Incarnation(ctx)
	if err != nil {
		return fmt.Errorf("files: heal: %w", err)
	}
	if now == s.heal.seen || s.heal.seen == "" {
		s.saw(now)
		return nil
	}
	restored := 0
	for _, c := range s.copies.list() {
		done, err := s.restore(ctx, c)
		if errors.Is(err, redis.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		if err != nil { // something is wrong with this one; the others go on
			s.log.Error("cannot put back a name", "error", err)
		}
		if done {
			s.copies.note(c.key, c.entry) // it may be lost again
			restored++
		}
	}
	s.saw(now)
	if restored > 0 {
		s.log.Warn("Redis had lost names of files, which were put back", "names", restored)
	}
	return nil
}

// saw notes that an incarnation of Redis has all names that this process knows. The caller has the
// turn.
func (s *Store) saw(incarnation string) {
	s.heal.seen = incarnation
	s.copies.gaveBack(incarnation)
}

// Recall begins with the names that the process before has given, and keeps them for the next one,
// in a folder of this hub's own. Call it before anything else.
func (s *Store) Recall(folder string) {
	if s.copies == nil {
		return
	}
	o := notebook.Options{Dir: folder, Life: copyLife, Bytes: noteBytes, Logger: s.log}
	s.copies.book = notebook.Open(o, s.copies.recall)
	s.heal.seen = s.copies.server
}

// Close writes what the next process needs to know. The store must not be used any more.
func (s *Store) Close() {
	if s.copies != nil {
		s.copies.book.Close()
	}
}

// restore puts back a name if Redis has lost it. It reports whether it was lost.
func (s *Store) restore(ctx context.Context, c copied) (bool, error) {
	p, e := c.key.place, c.entry
	if e.Stored() {
		if err := s.hold(ctx, e.Key); err != nil {
			return false, err
		}
	}
	series, number := "", int64(0)
	if n, ok := parseNumbered(p.name); ok {
		series, number = n.prefix, n.number
	}
	known, id := "", ""
	if e.Source != nil {
		known, id = s.knownKey(c.key.tenant, *e.Source), e.Source.id()
	}
	reply, err := s.db.Run(ctx, restoreScript,
		s.folderKey(c.key.tenant, p), s.numbersKey(c.key.tenant, p), s.foldersKey(c.key.tenant, p.typ), p.typ, p.dir, p.name,
		e.raw, c.key.tenant, series, strconv.FormatInt(number, 10), known, id,
		rememberSources.Milliseconds(), longestRun.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("files: put back a name: %w", err)
	}
	return reply[0] == "ok", nil
}
