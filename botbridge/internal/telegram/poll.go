package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// maxUpdates bounds an answer to a poll, in bytes.
	maxUpdates = 32 << 20
	firstPause = 200 * time.Millisecond
	maxPause   = 15 * time.Second
)

// updatesFor returns the kinds of updates that are wanted.
func updatesFor(inline bool) []string {
	kinds := []string{"message", "edited_message", "callback_query", "my_chat_member", "pre_checkout_query"}
	if inline {
		kinds = append(kinds, "inline_query")
	}
	return kinds
}

// Listen implements platform.Platform: it polls for updates, or asks Telegram to
// call the webhook.
func (t *Telegram) Listen(ctx context.Context, admit platform.Admit) error {
	t.listens.Store(time.Now().UnixNano())
	defer t.listens.Store(0)
	go t.introduce(ctx)
	if t.o.Webhook != "" {
		t.persist(ctx, func(ctx context.Context) error {
			_, err := t.bot.SetWebhook(ctx, &bot.SetWebhookParams{
				URL: t.o.Webhook, SecretToken: t.o.Secret, AllowedUpdates: updatesFor(t.o.Inline),
			})
			return err
		})
		<-ctx.Done()
		return ctx.Err()
	}
	t.persist(ctx, func(ctx context.Context) error {
		_, err := t.bot.DeleteWebhook(ctx, &bot.DeleteWebhookParams{})
		return err
	})
	t.poll(ctx, admit)
	return ctx.Err()
}

// persist calls try until it works or ctx ends.
func (t *Telegram) persist(ctx context.Context, try func(context.Context) error) {
	for pauses := retry.New(firstPause, maxPause); ctx.Err() == nil; pauses.Wait(ctx) {
		once, cancel := context.WithTimeout(ctx, 20*time.Second)
		once, seen := observed(once)
		err := try(once)
		cancel()
		if err == nil {
			t.trouble.Store(nil)
			return
		}
		err = hide(err)
		if wrongToken(int(seen.status.Load())) {
			err = ErrToken
		}
		t.trouble.Store(&err)
		if ctx.Err() == nil {
			t.o.Logger.Warn("cannot set how Telegram delivers updates", "error", hide(err))
		}
	}
}

// poll fetches updates. The library's own loop confirms an update to Telegram
// before anybody has seen it; here the offset advances only once the update is
// stored.
func (t *Telegram) poll(ctx context.Context, admit platform.Admit) {
	var offset int64
	pauses := retry.New(firstPause, maxPause)
	for ctx.Err() == nil {
		updates, err := t.getUpdates(ctx, offset)
		for _, u := range updates {
			if err = t.admit(ctx, u, admit); err != nil {
				break
			}
			offset = u.ID + 1
		}
		if err == nil {
			t.lastPoll.Store(time.Now().UnixNano())
			t.trouble.Store(nil)
			pauses.Reset()
			continue
		}
		if ctx.Err() != nil {
			return
		}
		t.trouble.Store(&err)
		wait := pauses.Next()
		if flood := (*platform.WaitError)(nil); errors.As(err, &flood) {
			wait = max(flood.After, wait)
		}
		t.o.Logger.Warn("polling Telegram failed", "error", err, "again_in", wait)
		retry.Sleep(ctx, wait)
	}
}

// admit passes an update on. Without the bot's own name nobody knows whom a message in a group
// is for, and an update that is left out does not come again: it waits for the name.
func (t *Telegram) admit(ctx context.Context, u *models.Update, admit platform.Admit) error {
	if err := t.know(ctx); err != nil {
		return err
	}
	e, ok := t.event(u)
	if !ok {
		return nil
	}
	return admit(ctx, e)
}

// getUpdates is a call that the library does not export.
func (t *Telegram) getUpdates(ctx context.Context, offset int64) ([]*models.Update, error) {
	ctx, cancel := context.WithTimeout(ctx, t.o.PollTimeout+15*time.Second)
	defer cancel()
	var list []json.RawMessage
	err := t.plain.call(ctx, "getUpdates", map[string]any{
		"offset": offset, "timeout": int(t.o.PollTimeout.Seconds()), "allowed_updates": updatesFor(t.o.Inline),
	}, &list)
	return t.decode(list), err
}

// plainAPI is the API without the library.
type plainAPI struct {
	http *http.Client
	base string // of all methods, with the token
}

// call makes a call.
func (a plainAPI) call(ctx context.Context, method string, params, result any) error {
	body, err := json.Marshal(params)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+method, bytes.NewReader(body))
	if err != nil {
		return errors.New("the token makes no address")
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := a.http.Do(r)
	if err != nil {
		return hide(err)
	}
	defer response.Body.Close()
	var answer struct {
		OK          bool
		Result      json.RawMessage
		Description string
		Parameters  struct {
			RetryAfter int `json:"retry_after"`
		}
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxUpdates))
	if err != nil {
		return err
	}
	err = json.Unmarshal(raw, &answer)
	switch {
	case err != nil:
		return fmt.Errorf("status %d: %w", response.StatusCode, err)
	case answer.Parameters.RetryAfter > 0:
		return &platform.WaitError{After: time.Duration(answer.Parameters.RetryAfter) * time.Second}
	case wrongToken(response.StatusCode):
		return ErrToken
	case !answer.OK:
		return fmt.Errorf("status %d: %s", response.StatusCode, answer.Description)
	}
	return json.Unmarshal(answer.Result, result)
}

// decode decodes updates one by one: one that the library cannot decode must not
// block all others.
func (t *Telegram) decode(list []json.RawMessage) []*models.Update {
	var updates []*models.Update
	for _, raw := range list {
		var u models.Update
		if err := json.Unmarshal(raw, &u); err != nil {
			t.o.Logger.Warn("skipping an update that cannot be read", "update", u.ID)
			var id struct {
				ID int64 `json:"update_id"`
			}
			if json.Unmarshal(raw, &id) != nil {
				continue
			}
			u = models.Update{ID: id.ID}
		}
		updates = append(updates, &u)
	}
	return updates
}
