package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Waiting is an event that waits to be handled.
type Waiting struct {
	Key string
	// Lane is what was given to Admit: the events of a lane are handled in order.
	Lane string
}

// Admit stores an event that waits to be handled. It returns false for one that was
// there before, handled or not. ErrFull means that its lane has sent more than can be
// handled for now, ErrCrowded that all lanes together have.
func (s *Inbox) Admit(ctx context.Context, key, lane string, event any) (bool, error) {
	doc, err := json.Marshal(event)
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, admitScript, key, lane, doc, s.o.Seen.Milliseconds(), s.o.PerChat, s.o.Inbox)
	if err != nil {
		return false, err
	}
	return reply[0] == "new", nil
}

// Handled removes an event that has been answered; its id is remembered.
func (s *Inbox) Handled(ctx context.Context, key string) error {
	_, err := s.run(ctx, handledScript, key, s.term.load())
	return err
}

// Pending lists at most limit events after a position, in the order in which they
// arrived. The last return value is where to continue.
func (s *Inbox) Pending(ctx context.Context, after int64, limit int) (events []Waiting, last int64, err error) {
	reply, err := s.run(ctx, pendingScript, after, limit)
	if err != nil {
		return nil, after, err
	}
	for i := 2; i+1 < len(reply); i += 2 {
		events = append(events, Waiting{Key: reply[i], Lane: reply[i+1]})
	}
	return events, number(reply[1]), nil
}

// Event reads an event that waits to be handled; ErrNotFound if it does not.
func (s *Inbox) Event(ctx context.Context, key string, event any) error {
	doc, err := s.db.Client().HGet(ctx, s.db.Key("events"), key).Bytes()
	if errors.Is(err, redis.Nil) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("reading an event: %w", err)
	}
	return json.Unmarshal(doc, event)
}

// Waiting counts the events that have not been handled.
func (s *Inbox) Waiting(ctx context.Context) (int64, error) {
	return s.db.Client().ZCard(ctx, s.db.Key("inbox")).Result()
}

// Meet remembers a chat, and the user who wrote in it last, for broadcasts: for a year after
// the last message there.
func (s *Chats) Meet(ctx context.Context, chat, user string) error {
	_, err := s.run(ctx, meetScript, s.term.load(), chat, user)
	return err
}

// Leave forgets a chat that the bridge may not write to.
func (s *Chats) Leave(ctx context.Context, chat string) error {
	_, err := s.run(ctx, leaveScript, s.term.load(), chat)
	return err
}

// Met returns the user who wrote in a chat last, "" if that is not known.
func (s *Chats) Met(ctx context.Context, chat string) (string, error) {
	user, err := s.db.Client().HGet(ctx, s.db.Key("chat_users"), chat).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return user, err
}

// All returns the chats that were met, for a broadcast.
func (s *Chats) All(ctx context.Context) ([]string, error) {
	chats, err := s.db.Client().ZRange(ctx, s.db.Key("chats"), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("listing chats: %w", err)
	}
	return chats, nil
}

// Hints reports when an event was admitted, perhaps by another process. Hints can
// be lost; poll every second, too.
func (s *Inbox) Hints(ctx context.Context) <-chan redis.Notice {
	return s.db.Subscribe(ctx, s.db.Key("admitted"))
}
