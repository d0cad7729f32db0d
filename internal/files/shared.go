package files

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// sharedFor is how long a hub that says nothing is assumed to use the storage that it last
// reported.
const sharedFor = 5 * time.Minute

// CheckShared compares the storage with those of the other hubs on this Redis: ErrNotShared says
// that one of them uses another, so that files of one hub could not be seen through the other. Call
// it at least once a minute; hub is the caller's lasting id.
func (s *Store) CheckShared(ctx context.Context, hub string) error {
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
func (s *Store) Leave(ctx context.Context, hub string) error {
	if _, err := s.db.Run(ctx, markScript, hub, "", 0); err != nil {
		return fmt.Errorf("files: mark: %w", err)
	}
	return nil
}

// mark returns what tells this storage from every other; the first hub leaves it there.
func (s *Store) mark(ctx context.Context) (string, error) {
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
	s.storage.health.marked(mark)
	return mark, nil
}
