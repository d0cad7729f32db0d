package conversation

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
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

// broadcasts sends the operator's messages to all chats, in the background.
type broadcasts struct {
	store    *state.Store
	outbox   *outbox.Outbox
	guard    *limits.Guard
	texts    *locale.Bundle
	platform func(name string) platform.Platform
	logger   *slog.Logger
	guests   *guests

	mu         sync.Mutex
	background sync.WaitGroup
	spreads    map[string]bool // that this process is sending
}

// begin sends a message to every chat that has used the bridge and still may. It keeps
// to the platform's limits, so it can take a while, and it continues after a restart.
func (bs *broadcasts) begin(ctx context.Context, tn *turn) error {
	if tn.rest == "" {
		return tn.reply(ctx, tn.say("usage_broadcast", nil))
	}
	id := request.IDOf(tn.Key())
	chats, fresh, err := bs.store.Broadcasts.Start(ctx, id, broadcast{
		Text: tn.rest, Platform: tn.Platform, Chat: tn.Chat, Message: tn.Message.ID, Language: tn.language,
	})
	if err != nil {
		return err
	}
	if fresh { // before the first chat hears the message, or the operator might be told first that it is done
		err = tn.reply(ctx, tn.say("broadcasting", locale.With{"n": chats}))
	}
	// Also if it was stored before: Redis may have lost the reply.
	bs.spread(driving(ctx), id)
	return err
}

// Resume continues unfinished broadcasts when this process begins to lead. The last leader
// may have forgotten chats that this one remembers as noted.
func (t *Talk) Resume(ctx context.Context) error {
	t.guests.renew()
	return t.broadcasts.resume(ctx)
}

// resume continues what the last leader has not finished.
func (bs *broadcasts) resume(ctx context.Context) error {
	ids, err := bs.store.Broadcasts.Unfinished(ctx)
	for _, id := range ids {
		bs.spread(ctx, id)
	}
	return err
}

// Wait waits until this process has no work left in the background.
func (t *Talk) Wait() {
	t.broadcasts.background.Wait()
	t.menus.background.Wait()
}

// spread sends to every remaining chat, until ctx ends.
func (bs *broadcasts) spread(ctx context.Context, id string) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.spreads[id] {
		return
	}
	bs.spreads[id] = true
	bs.background.Go(func() {
		defer func() {
			bs.mu.Lock()
			delete(bs.spreads, id)
			bs.mu.Unlock()
		}()
		pauses := retry.New(broadcastPause, broadcastPause)
		for ctx.Err() == nil {
			done, err := bs.spreadSome(ctx, id)
			switch {
			case done, errors.Is(err, state.ErrNotFound), errors.Is(err, state.ErrDeposed):
				return
			case err != nil:
				bs.logger.Warn("a broadcast is held up", "error", err)
				pauses.Wait(ctx)
			}
		}
	})
}

// spreadSome sends to a batch of chats and returns true if none is left.
func (bs *broadcasts) spreadSome(ctx context.Context, id string) (done bool, err error) {
	var b broadcast
	if err := bs.store.Broadcasts.Message(ctx, id, &b); err != nil {
		return false, err
	}
	chats, err := bs.store.Broadcasts.Left(ctx, id, broadcastBatch)
	if err != nil {
		return false, err
	}
	if len(chats) == 0 {
		return true, bs.spreadOver(ctx, id, b)
	}
	var group errgroup.Group
	group.SetLimit(broadcastWidth)
	for _, chat := range chats {
		group.Go(func() error { return bs.tellChat(ctx, id, chat, b.Text) })
	}
	return false, group.Wait()
}

// tellChat sends to one chat and records that first, so that a chat that may have received
// the message before the bridge was killed does not get it twice.
func (bs *broadcasts) tellChat(ctx context.Context, id, key, text string) error {
	mark := func(ctx context.Context, m state.Mark) error { return bs.store.Broadcasts.Mark(ctx, id, key, m) }
	name, chat, ok := ParseChatKey(key)
	p := bs.platform(name)
	if !ok || p == nil {
		return mark(ctx, state.Refused)
	}
	user, err := bs.store.Chats.Met(ctx, key)
	if err != nil {
		return err
	}
	if may, err := bs.guard.MayTell(ctx, name, chat, user); err != nil || !may {
		if err != nil {
			return err
		}
		return mark(ctx, state.Refused)
	}
	once := outbox.Once{Mark: func(ctx context.Context, sending bool, _ string) error {
		if sending {
			return mark(ctx, state.Sending)
		}
		return mark(ctx, state.Unsent)
	}}
	_, err = bs.outbox.SendOnce(ctx, p, chat, platform.Post{Text: text}, once)
	if moved, ok := errors.AsType[*platform.MovedError](err); ok {
		chat.ID = moved.To
		_, err = bs.outbox.SendOnce(ctx, p, chat, platform.Post{Text: text}, once)
	}
	switch {
	case err == nil:
		return mark(ctx, state.Reached)
	case errors.Is(err, platform.ErrForbidden):
		if err := bs.guests.left(ctx, key); err != nil {
			return err
		}
		return mark(ctx, state.Refused)
	case errors.Is(err, platform.ErrUncertain), platform.Permanent(err), errors.Is(err, outbox.ErrFull):
		return mark(ctx, state.Refused)
	}
	return err
}

// spreadOver reports the result to the operator.
func (bs *broadcasts) spreadOver(ctx context.Context, id string, b broadcast) error {
	reached, chats, err := bs.store.Broadcasts.End(ctx, id)
	if err != nil {
		return err
	}
	bs.logger.Info("a broadcast is done", "chats", chats, "reached", reached)
	if p := bs.platform(b.Platform); p != nil {
		text := bs.texts.Say(b.Language, "broadcast_done", locale.With{"reached": reached, "n": chats})
		_, err = bs.outbox.Send(ctx, p, b.Chat, platform.Post{Text: text, ReplyTo: b.Message})
	}
	return err
}
