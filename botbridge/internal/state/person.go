package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/comfyhub/comfyhub/internal/redis"
)

var partWithScript = script("part_with", redis.Durable)

// Own returns the ids of a user's requests that are still known, the oldest first: those
// of the last 30 days, at most 5000, and unfinished ones.
func (s *Requests) Own(ctx context.Context, who string) ([]string, error) {
	ids, err := s.db.Client().ZRange(ctx, s.db.Key("mine", who), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("listing requests: %w", err)
	}
	active, err := s.ActiveOf(ctx, who)
	if err != nil {
		return nil, err
	}
	for _, id := range active {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// HeldOf returns what waits for a user's decisions, by id.
func (s *People) HeldOf(ctx context.Context, who string) (map[string]json.RawMessage, error) {
	ids, err := s.db.Client().ZRange(ctx, s.db.Key("holds", who), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("listing what waits: %w", err)
	}
	held := map[string]json.RawMessage{}
	for _, id := range ids {
		var doc json.RawMessage
		switch err := s.Held(ctx, id, &doc); {
		case err == nil:
			held[id] = doc
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	return held, nil
}

// PartWith forgets the values of some kinds that are named after a user, and what waits
// for their decisions.
func (s *People) PartWith(ctx context.Context, who string, kinds ...string) error {
	args := []any{s.term.load(), who}
	for _, kind := range kinds {
		args = append(args, kind)
	}
	_, err := s.run(ctx, partWithScript, args...)
	return err
}
