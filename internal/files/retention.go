package files

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Remove removes names; it is not an error if one is not there. Outputs stay on their instances,
// and blobs stay until they are swept, because a job may have them pinned and other names may share
// them.
func (s *Store) Remove(ctx context.Context, tenant string, refs []job.FileRef) error {
	for _, ref := range refs {
		p, ok := placeOf(ref)
		if !ok {
			continue
		}
		if _, _, err := s.remove(ctx, tenant, p, removal{}); err != nil {
			return err
		}
	}
	return nil
}

// removal says which files may be removed; the zero value says all.
type removal struct {
	until  time.Time // last used no later than this
	spared func(Entry) (bool, error)
	trash  string // how long the trash keeps them, in the form that scripts take; "" for not at all
}

// remove removes a name and returns what it stood for; false says that it was spared.
func (s *Store) remove(ctx context.Context, tenant string, p place, r removal) (Entry, bool, error) {
	until := ""
	if !r.until.IsZero() {
		until = fmt.Sprint(r.until.UnixMilli())
	}
	for {
		e, err := s.resolve(ctx, tenant, p)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Entry{}, false, err
		}
		if err == nil && r.spared != nil {
			if spared, err := r.spared(e); err != nil || spared {
				return Entry{}, false, err
			}
		}
		var known, id string
		if e.Source != nil {
			known, id = s.knownKey(tenant, *e.Source), e.Source.id()
		}
		reply, err := s.db.Run(ctx, removeScript,
			s.folderKey(tenant, p), s.foldersKey(tenant, p.typ), p.dir, p.name, e.raw, known, id, tenant, p.typ, until, r.trash)
		if err != nil {
			return Entry{}, false, fmt.Errorf("files: remove: %w", err)
		}
		if reply[0] != "changed" {
			if reply[0] == "ok" {
				s.copies.forget(nameKey{tenant, p})
			}
			return e, reply[0] == "ok", nil
		}
	}
}

// Uses returns the indexes of outputs, and the members in them that stand for files of a tenant.
// Whoever records that a history entry names them sets their score to the time of its end, in
// milliseconds: see queue.Uses.
func (s *Store) Uses(tenant string, refs []job.FileRef) (indexes, members []string) {
	for _, ref := range refs {
		if p, ok := placeOf(ref); ok && p.typ != job.TypeInput {
			members = append(members, redis.Pack(tenant, p.typ, p.dir, p.name))
		}
	}
	return []string{s.usedKey(job.TypeOutput), s.ownKey(tenant)}, members
}

// indexed reads a member of the index of last uses.
func indexed(member string) (tenant string, p place, err error) {
	parts, ok := redis.Unpack(member)
	if !ok || len(parts) != 4 {
		return "", place{}, fmt.Errorf("%w: index of files", errEntry)
	}
	return parts[0], place{typ: parts[1], dir: parts[2], name: parts[3]}, nil
}

// Pinned returns the keys of the blobs that waiting or running jobs have pinned. It is called only
// if there is something to delete.
type Pinned func(context.Context) (map[string]bool, error)

// once calls p at most once.
func (p Pinned) once() Pinned {
	var keys map[string]bool
	asked := false
	return func(ctx context.Context) (_ map[string]bool, err error) {
		if !asked {
			if keys, err = p(ctx); err != nil {
				return nil, err
			}
			asked = true
		}
		return keys, nil
	}
}

// expireBatch bounds what is read at once, expireMost what one call removes: the rest is left to
// the next call.
const (
	expireBatch = 100
	expireMost  = 5000
)

// Expire removes the files of a type that were last used no later than until: those of the history
// (TypeOutput, which includes TypeTemp) or uploaded inputs (TypeInput). What a job has pinned stays
// and counts as used now. The bytes go as well, unless the trash keeps them.
func (s *Store) Expire(ctx context.Context, typ string, until time.Time, pinned Pinned) (Swept, error) {
	return s.expireIn(ctx, s.usedKey(typ), until, s.grace(), pinned)
}

// ExpireOwn is Expire for the outputs of one tenant that has too much: the trash keeps none of
// them.
func (s *Store) ExpireOwn(ctx context.Context, tenant string, until time.Time, pinned Pinned) (Swept, error) {
	return s.expireIn(ctx, s.ownKey(tenant), until, "", pinned)
}

func (s *Store) expireIn(ctx context.Context, index string, until time.Time, trash string, pinned Pinned) (Swept, error) {
	pinned = pinned.once()
	var swept Swept
	var refused refusal
	for range expireMost / expireBatch {
		members, err := s.db.Client().ZRangeByScore(ctx, index, &redis.ZRangeBy{
			Min: "-inf", Max: fmt.Sprint(until.UnixMilli()), Count: expireBatch,
		}).Result()
		if err != nil {
			return swept, fmt.Errorf("files: expire: %w", err)
		}
		if len(members) == 0 {
			break
		}
		for _, member := range members {
			if err := refused.past(s.expire(ctx, member, until, trash, pinned, &swept)); err != nil {
				return swept, err
			}
		}
	}
	return swept, refused.first
}

func (s *Store) expire(ctx context.Context, member string, until time.Time, trash string, pinned Pinned, swept *Swept) error {
	tenant, p, err := indexed(member)
	if err != nil {
		return err
	}
	e, removed, err := s.remove(ctx, tenant, p, removal{until: until, trash: trash, spared: func(e Entry) (bool, error) {
		keys, err := pinned(ctx)
		if err != nil || !keys[e.Key] {
			return false, err
		}
		_, err = s.db.Run(ctx, useScript, tenant, p.typ, p.dir, p.name)
		return true, err
	}})
	if err != nil || !removed {
		return err
	}
	swept.Files++
	if !e.Stored() || trash != "" {
		return nil
	}
	deleted, err := s.sweep(ctx, e.Key)
	if deleted {
		swept.Bytes += e.Size
	}
	return err
}

// Lead reports whether a duty that only one hub has at a time is this hub's for a while, and
// extends it.
func (s *Store) Lead(ctx context.Context, duty, hub string, while time.Duration) (bool, error) {
	reply, err := s.db.Run(ctx, leadScript, duty, hub, while.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("files: lead: %w", err)
	}
	return reply[0] == "ok", nil
}
