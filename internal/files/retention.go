package files

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Remove takes names away; those that are not there are no error. Outputs stay
// on their instances, and blobs until they are swept, because a job may have
// them pinned and other names may share them.
func (s *Store) Remove(ctx context.Context, tenant string, refs []Ref) error {
	for _, ref := range refs {
		p, ok := ref.place()
		if !ok {
			continue
		}
		if err := s.remove(ctx, tenant, p); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) remove(ctx context.Context, tenant string, p place) error {
	for {
		e, err := s.resolve(ctx, tenant, p)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		var known, id string
		if e.Source != nil {
			known, id = s.knownKey(tenant, *e.Source), e.Source.id()
		}
		reply, err := s.db.Run(ctx, removeScript,
			s.folderKey(tenant, p), s.foldersKey(tenant, p.typ), p.dir, p.name, e.raw, known, id)
		if err != nil {
			return fmt.Errorf("files: remove: %w", err)
		}
		if reply[0] == "ok" {
			return nil
		}
	}
}

// Swept is what a Sweep deleted.
type Swept struct {
	Files int
	Bytes int64
}

const (
	// doomFor bounds how long others wait for one deletion, and deleteWithin
	// is well before that: a sweep that slept on the way must not delete what
	// was taken up again meanwhile.
	doomFor      = time.Minute
	deleteWithin = 30 * time.Second
)

// Sweep deletes the blobs that have no name, are not among the pinned keys (of
// all jobs that wait or run, asked before the call) and are older than age, at
// least an hour. It may run on several hubs at once.
func (s *Store) Sweep(ctx context.Context, age time.Duration, pinned map[string]bool) (Swept, error) {
	before := s.now().Add(-max(age, holdFor))
	var swept Swept
	for _, prefix := range [...]string{contentPrefix, outputPrefix} {
		err := s.storage.List(ctx, prefix, func(b Blob) error {
			if pinned[b.Key] || b.Modified.After(before) {
				return nil
			}
			deleted, err := s.sweep(ctx, b.Key)
			if deleted {
				swept.Files++
				swept.Bytes += b.Size
			}
			return err
		})
		if err != nil {
			return swept, err
		}
	}
	return swept, nil
}

func (s *Store) sweep(ctx context.Context, key string) (deleted bool, err error) {
	begin := time.Now()
	reply, err := s.db.Run(ctx, doomScript, key, doomFor.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("files: sweep: %w", err)
	}
	if reply[0] != "ok" {
		return false, nil
	}
	if time.Since(begin) < deleteWithin {
		if err = s.storage.Delete(ctx, key); err == nil {
			deleted = true
		}
	}
	_, spareErr := s.db.Run(ctx, spareScript, key)
	return deleted, errors.Join(err, spareErr)
}
