package conversation

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// star adds picture n, from 1, to the favourites of whoever pressed the button, or removes
// it.
func (gy *gallery) star(ctx context.Context, tn *turn, rec request.Record, n int) error {
	out := rec.Outputs[n-1]
	starred, err := gy.store.Toggle(ctx, tn.who(), tn.Key(), state.Star{
		Request: rec.ID, Picture: n - 1, Command: rec.Command, Words: rec.Words(), At: time.Now(),
		Chat: rec.Chat.ID, Topic: rec.Chat.Topic, Group: rec.Chat.Group, Message: out.Message,
	})
	if err != nil {
		return err
	}
	key := "star_off"
	if starred {
		key = "star_on"
	}
	tn.answer(ctx, key)
	return nil
}
