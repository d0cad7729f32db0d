package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/redis"
)

var (
	broadcastScript     = script("broadcast", redis.Durable)
	broadcastMarkScript = script("broadcast_mark", redis.Durable)
	broadcastEndScript  = script("broadcast_end", redis.Durable)
)

// Mark is how far a broadcast is with one chat.
type Mark string

// The marks. A chat is left at the beginning, and again once it is unsent. One that
// was being sent to when the bridge ended is not sent to again, because it may have
// received the message.
const (
	Sending Mark = "sending"
	Unsent  Mark = "unsent"
	Reached Mark = "reached"
	Refused Mark = "refused"
)

// Start starts a broadcast to every chat and returns how many there are. fresh
// is false if it was started before.
func (s *Broadcasts) Start(ctx context.Context, id string, message any) (chats int64, fresh bool, err error) {
	doc, err := json.Marshal(message)
	if err != nil {
		return 0, false, err
	}
	reply, err := s.run(ctx, broadcastScript, s.term.load(), id, doc, s.o.Keep.Milliseconds())
	if err != nil || reply[0] != "ok" {
		return 0, false, err
	}
	return number(reply[1]), true, nil
}

// Unfinished returns the unfinished broadcasts.
func (s *Broadcasts) Unfinished(ctx context.Context) ([]string, error) {
	ids, err := s.db.Client().SMembers(ctx, s.db.Key("broadcasts")).Result()
	if err != nil {
		return nil, fmt.Errorf("listing broadcasts: %w", err)
	}
	return ids, nil
}

// Message reads the message of a broadcast; ErrNotFound if it has expired.
func (s *Broadcasts) Message(ctx context.Context, id string, message any) error {
	doc, err := s.db.Client().HGet(ctx, s.db.Key("broadcast", id), "doc").Result()
	if errors.Is(err, redis.Nil) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("reading a broadcast: %w", err)
	}
	return json.Unmarshal([]byte(doc), message)
}

// Left reads at most limit of the chats that have not been told.
func (s *Broadcasts) Left(ctx context.Context, id string, limit int64) ([]string, error) {
	chats, err := s.db.Client().ZRange(ctx, s.db.Key("broadcast_left", id), 0, limit-1).Result()
	if err != nil {
		return nil, fmt.Errorf("reading the chats of a broadcast: %w", err)
	}
	return chats, nil
}

// Mark records how far a broadcast is with a chat.
func (s *Broadcasts) Mark(ctx context.Context, id, chat string, m Mark) error {
	_, err := s.run(ctx, broadcastMarkScript, s.term.load(), id, chat, string(m))
	return err
}

// End ends a broadcast and returns how many chats it has reached;
// ErrNotFound if it was ended before.
func (s *Broadcasts) End(ctx context.Context, id string) (reached, chats int64, err error) {
	reply, err := s.run(ctx, broadcastEndScript, s.term.load(), id)
	if err != nil {
		return 0, 0, err
	}
	return number(reply[1]), number(reply[2]), nil
}
