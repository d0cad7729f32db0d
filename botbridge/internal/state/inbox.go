package state

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Admit stores an event that waits to be handled. It returns false for one that was
// there before, handled or not. ErrFull means that the chat, or all chats together,
// have sent more than can be handled for now.
func (s *Store) Admit(ctx context.Context, key, chat string, event any) (bool, error) {
	doc, err := json.Marshal(event)
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, admitScript, key, chat, doc, s.o.Seen.Milliseconds(), s.o.PerChat, s.o.Inbox)
	if err != nil {
		return false, err
	}
	return reply[0] == "new", nil
}

// Handled removes an event that has been answered; its id is remembered.
func (s *Store) Handled(ctx context.Context, key string) error {
	_, err := s.run(ctx, handledScript, key, s.term.load())
	return err
}

// Pending reads at most limit events after a position, in the order in which they
// arrived. The last return value is where to continue.
func (s *Store) Pending(ctx context.Context, after int64, limit int) (events []json.RawMessage, last int64, err error) {
	reply, err := s.run(ctx, pendingScript, after, limit)
	if err != nil {
		return nil, after, err
	}
	for _, doc := range reply[2:] {
		events = append(events, json.RawMessage(doc))
	}
	return events, number(reply[1]), nil
}

// Waiting counts the events that have not been handled.
func (s *Store) Waiting(ctx context.Context) (int64, error) {
	return s.db.Client().ZCard(ctx, s.db.Key("inbox")).Result()
}

// Chats returns the chats that ever sent a message, for a broadcast. Each is as it
// was given to Admit.
func (s *Store) Chats(ctx context.Context) ([]string, error) {
	chats, err := s.db.Client().ZRange(ctx, s.db.Key("chats"), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("listing chats: %w", err)
	}
	return chats, nil
}

// Hints reports when an event was admitted, perhaps by another process. Hints can
// be lost; poll every second, too.
func (s *Store) Hints(ctx context.Context) <-chan redis.Notice {
	return s.db.Subscribe(ctx, s.db.Key("admitted"))
}
