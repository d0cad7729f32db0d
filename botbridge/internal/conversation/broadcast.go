package conversation

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// broadcast is a message to every chat. Older and newer bridges read its JSON.
type broadcast struct {
	Text string `json:"text"`
	// Platform, Chat, Message and Language are the operator's, for reporting the result.
	Platform string        `json:"platform"`
	Chat     platform.Chat `json:"chat"`
	Message  string        `json:"message"`
	Language string        `json:"language"`
}

const (
	// broadcastBatch is how many chats are read at a time, broadcastWidth how many are sent
	// to at once, so that one that hangs does not delay the others.
	broadcastBatch = 100
	broadcastWidth = 8
	// broadcastPause is the longest pause between two attempts while a broadcast makes no
	// progress.
	broadcastPause = time.Second
)

// broadcast sends a message to every chat that has used the bridge and still may. It keeps
// to the platform's limits, so it can take a while, and it continues after a restart.
func (t *Talk) broadcast(ctx context.Context, tn *turn) error {
	if tn.rest == "" {
		return tn.reply(ctx, tn.say("usage_broadcast", nil))
	}
	id := request.IDOf(tn.Key())
	chats, fresh, err := t.o.Store.Broadcast(ctx, id, broadcast{
		Text: tn.rest, Platform: tn.Platform, Chat: tn.Chat, Message: tn.Message.ID, Language: tn.language,
	})
	if err != nil {
		return err
	}
	// Also if it was stored before: Redis may have lost the reply.
	t.spread(driving(ctx), id)
	if !fresh {
		return nil
	}
	return tn.reply(ctx, tn.say("broadcasting", locale.With{"n": chats}))
}

// Resume continues unfinished broadcasts when this process begins to lead. The last leader
// may have forgotten chats that this one remembers as noted.
func (t *Talk) Resume(ctx context.Context) error {
	t.guests.renew()
	ids, err := t.o.Store.Broadcasts(ctx)
	for _, id := range ids {
		t.spread(ctx, id)
	}
	return err
}

// Wait waits until this process has no work left in the background.
func (t *Talk) Wait() { t.spreading.Wait() }

// spread sends to every remaining chat, until ctx ends.
func (t *Talk) spread(ctx context.Context, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.spreads[id] {
		return
	}
	t.spreads[id] = true
	t.spreading.Go(func() {
		defer func() {
			t.mu.Lock()
			delete(t.spreads, id)
			t.mu.Unlock()
		}()
		pauses := retry.New(broadcastPause, broadcastPause)
		for ctx.Err() == nil {
			done, err := t.spreadSome(ctx, id)
			switch {
			case done, errors.Is(err, state.ErrNotFound), errors.Is(err, state.ErrDeposed):
				return
			case err != nil:
				t.o.Logger.Warn("a broadcast is held up", "error", err)
				pauses.Wait(ctx)
			}
		}
	})
}

// spreadSome sends to a batch of chats and returns true if none is left.
func (t *Talk) spreadSome(ctx context.Context, id string) (done bool, err error) {
	var b broadcast
	if err := t.o.Store.BroadcastMessage(ctx, id, &b); err != nil {
		return false, err
	}
	chats, err := t.o.Store.BroadcastLeft(ctx, id, broadcastBatch)
	if err != nil {
		return false, err
	}
	if len(chats) == 0 {
		return true, t.spreadOver(ctx, id, b)
	}
	var group errgroup.Group
	group.SetLimit(broadcastWidth)
	for _, chat := range chats {
		group.Go(func() error { return t.tellChat(ctx, id, chat, b.Text) })
	}
	return false, group.Wait()
}

// tellChat sends to one chat and records that first, so that a chat that may have received
// the message before the bridge was killed does not get it twice.
func (t *Talk) tellChat(ctx context.Context, id, key, text string) error {
	mark := func(ctx context.Context, m state.Mark) error { return t.o.Store.BroadcastMark(ctx, id, key, m) }
	name, chat, ok := ParseChatKey(key)
	p := t.o.Platform(name)
	if !ok || p == nil {
		return mark(ctx, state.Refused)
	}
	user, err := t.o.Store.Met(ctx, key)
	if err != nil {
		return err
	}
	if may, err := t.o.Guard.MayTell(ctx, name, chat, user); err != nil || !may {
		if err != nil {
			return err
		}
		return mark(ctx, state.Refused)
	}
	marked := func(ctx context.Context, sending bool) error {
		if sending {
			return mark(ctx, state.Sending)
		}
		return mark(ctx, state.Unsent)
	}
	_, err = t.o.Outbox.SendOnce(ctx, p, chat, platform.Post{Text: text}, marked)
	if moved, ok := errors.AsType[*platform.MovedError](err); ok {
		chat.ID = moved.To
		_, err = t.o.Outbox.SendOnce(ctx, p, chat, platform.Post{Text: text}, marked)
	}
	switch {
	case err == nil:
		return mark(ctx, state.Reached)
	case errors.Is(err, platform.ErrForbidden):
		if err := t.guests.left(ctx, key); err != nil {
			return err
		}
		return mark(ctx, state.Refused)
	case errors.Is(err, platform.ErrUncertain), platform.Permanent(err), errors.Is(err, outbox.ErrFull):
		return mark(ctx, state.Refused)
	}
	return err
}

// spreadOver reports the result to the operator.
func (t *Talk) spreadOver(ctx context.Context, id string, b broadcast) error {
	reached, chats, err := t.o.Store.BroadcastEnd(ctx, id)
	if err != nil {
		return err
	}
	t.o.Logger.Info("a broadcast is done", "chats", chats, "reached", reached)
	if p := t.o.Platform(b.Platform); p != nil {
		text := t.o.Texts.Say(b.Language, "broadcast_done", locale.With{"reached": reached, "n": chats})
		_, err = t.o.Outbox.Send(ctx, p, b.Chat, platform.Post{Text: text, ReplyTo: b.Message})
	}
	return err
}
