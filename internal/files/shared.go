package files

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// sharedFor is how long a hub that says nothing is assumed to use the storage that it last
// reported.
const sharedFor = 5 * time.Minute

// Sharing is what the hubs on one Redis agree on: that they use one storage, and which of them does
// what only one may do.
type Sharing struct {
	db      *redis.DB
	storage *Storage
}

// NewSharing returns the part of a hub with a storage.
func NewSharing(db *redis.DB, storage *Storage) *Sharing { return &Sharing{db, storage} }

// Check compares the storage with those of the other hubs on this Redis: ErrNotShared says
// that one of them uses another, so that files of one hub could not be seen through the other. Call
// it at least once a minute; hub is the caller's lasting id.
func (s *Sharing) Check(ctx context.Context, hub string) error {
	mark, err := s.mark(ctx)
	if err != nil {
		return err
	}
	reply, err := s.db.Run(ctx, markScript, hub, mark, sharedFor.Milliseconds())
	if err != nil {
		return fmt.Errorf("files: mark: %w", err)
	}
	if reply[0] != "ok" {
		return fmt.Errorf("%w: hub %s has another", ErrNotShared, reply[1])
	}
	return nil
}

// Leave tells the others that a hub no longer uses its storage.
func (s *Sharing) Leave(ctx context.Context, hub string) error {
	if _, err := s.db.Run(ctx, markScript, hub, "", 0); err != nil {
		return fmt.Errorf("files: mark: %w", err)
	}
	return nil
}

// mark returns what tells this storage from every other; the first hub leaves it there.
func (s *Sharing) mark(ctx context.Context) (string, error) {
	mark, err := s.storage.ownFile(ctx, markKey, maxMark)
	if errors.Is(err, ErrGone) {
		if _, err := s.storage.Create(ctx, markKey, strings.NewReader(uuid.NewString())); err != nil {
			return "", err
		}
		// It may be another hub's, which was faster.
		mark, err = s.storage.ownFile(ctx, markKey, maxMark)
	}
	if err != nil {
		return "", err
	}
	s.storage.Health().marked(mark)
	return mark, nil
}

// Lead reports whether a duty that only one hub has at a time is this hub's for a while, and
// extends it.
func (s *Sharing) Lead(ctx context.Context, duty, hub string, while time.Duration) (bool, error) {
	reply, err := s.db.Run(ctx, leadScript, duty, hub, while.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("files: lead: %w", err)
	}
	return reply[0] == "ok", nil
}
