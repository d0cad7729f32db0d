package files

import (
	"context"
	_ "embed"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

//go:embed scripts/seen.lua
var seenLua string

var seenScript = redis.NewScript("files/seen", redis.Write, seenLua)

// Show is Resolve for somebody who reads the file: a preview counts as seen from now on.
func (s *Store) Show(ctx context.Context, tenant string, ref job.FileRef) (Entry, error) {
	p, ok := placeOf(ref)
	if !ok {
		return Entry{}, ErrNotFound
	}
	return s.show(ctx, tenant, p)
}

func (s *Store) show(ctx context.Context, tenant string, p place) (Entry, error) {
	e, err := s.resolve(ctx, tenant, p)
	if err != nil || !e.Unseen {
		return e, err
	}
	seen := e
	seen.Unseen = false
	if seen.raw, err = seen.encode(); err != nil {
		return e, nil //nolint:nilerr // the file can be read all the same
	}
	reply, err := s.db.Run(ctx, seenScript, redis.Pack(tenant, p.typ, p.dir), p.name, e.raw, seen.raw)
	if err != nil || reply[0] != "ok" {
		return e, nil //nolint:nilerr // it is noted when it is read again
	}
	s.copies.note(nameKey{tenant, p}, seen)
	return seen, nil
}
