package state

import (
	"context"
	"encoding/json"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

var (
	holdScript    = script("hold", redis.Durable)
	releaseScript = script("release", redis.Durable)
	countScript   = script("count", redis.Durable)
)

const (
	// heldKeep is how long something waits for its user's decision.
	heldKeep = 24 * time.Hour
	// maxHeld bounds what is held for one user.
	maxHeld = 20
)

// Hold keeps something for a day until its user decides; users can export it and have it
// forgotten. It replaces what has the same id. At most 20 things are kept for a user: the
// oldest is dropped.
func (s *People) Hold(ctx context.Context, who, id string, held any) error {
	doc, err := json.Marshal(held)
	if err != nil {
		return err
	}
	_, err = s.run(ctx, holdScript, s.term.load(), who, id, doc, heldKeep.Milliseconds(), maxHeld)
	return err
}

// Held reads what Hold keeps; ErrNotFound if there is nothing, or it has expired.
func (s *People) Held(ctx context.Context, id string, held any) error {
	return s.get(ctx, "held", id, held)
}

// Release forgets what Hold keeps.
func (s *People) Release(ctx context.Context, who, id string) error {
	_, err := s.run(ctx, releaseScript, s.term.load(), who, id)
	return err
}

// Count counts something towards a user's daily limit (UTC) for its kind, and returns false
// if that is used up. The same thing counts once, so the call may be repeated.
func (s *Usage) Count(ctx context.Context, kind, who, thing string, share int) (bool, error) {
	reply, err := s.run(ctx, countScript, s.term.load(), kind, day(time.Now()), who, thing, share)
	if err != nil {
		return false, err
	}
	return reply[0] == "ok", nil
}
