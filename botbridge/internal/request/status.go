package request

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// tellTries is how many status messages of a request may have an unknown fate. After that
// it gets none; its result comes anyway.
const tellTries = 3

// statusMessage is the message that tells how a request is getting on. There is one at a
// time, and Runner.Words asks what it says.
type statusMessage struct {
	store    *state.Store
	outbox   *outbox.Outbox
	logger   *slog.Logger
	platform platform.Platform
	rec      *Record
	entry    *entry
	words    *wording
	told     chan struct{} // closed once the user has been told, or never will be
	tellOnce sync.Once

	mu    sync.Mutex
	shown string // the text of the message
}

// tell posts the status message, if that has not been done.
//
// A bridge that is killed after the platform has taken the message and before its id is
// stored looks for it where it can; elsewhere it never learns the id. So the intent is stored
// first, the words of the first message stay true whatever happens, and the message after one
// of unknown fate says that it alone counts. A button under the lost one removes it; see
// conversation.
func (sm *statusMessage) tell(ctx context.Context) error {
	defer sm.tellOnce.Do(func() { close(sm.told) })
	for pauses := retry.New(firstPause, maxPause); ; {
		err := sm.tellOnceMore(ctx)
		switch {
		case errors.Is(err, outbox.ErrGaveUp):
			return nil
		case !errors.Is(err, platform.ErrUncertain):
			return err
		}
		// Those who wait for this message go on after it, so that replies keep the order of
		// the requests.
		if !pauses.Wait(ctx) {
			return ctx.Err()
		}
	}
}

// tellOnceMore posts the status message once, unless it is there, or too many may be.
func (sm *statusMessage) tellOnceMore(ctx context.Context) error {
	limits := sm.platform.Limits()
	knows := limits.KnowsPosts && limits.KnowsPostsFor == 0 || outbox.Finds(sm.platform)
	if sm.rec.Status != "" || sm.rec.Phase == Over || sm.rec.Tellings >= tellTries && !knows {
		return nil
	}
	before := sm.rec.Tellings
	if sm.rec.Told != "" && before > 0 {
		before-- // the last one is looked for
	}
	post := sm.words.statusPost()
	post.ID = sm.rec.postID("status")
	shown := post.Text
	if words := sm.words.firstWords(); words != "" {
		post.Text = words
	}
	if before > 0 && !knows {
		post.Text += "\n" + sm.words.say("status_void", nil)
	}
	ids, err := sm.outbox.SendOnce(ctx, sm.platform, sm.rec.Chat, post, outbox.Once{After: sm.rec.Told, Known: sm.entry.taken, Mark: func(ctx context.Context, sending bool, after string) error {
		tellings := before
		if sending {
			tellings++
		}
		if sm.rec.Tellings == tellings && sm.rec.Told == after {
			return nil
		}
		sm.rec.Tellings, sm.rec.Told = tellings, after
		return sm.entry.save(ctx)
	}})
	if errors.Is(err, platform.ErrForbidden) {
		// Nobody would see the picture.
		return sm.wantCancel(ctx)
	}
	if err != nil && !platform.Permanent(err) {
		return err
	}
	if len(ids) == 0 {
		return nil
	}
	sm.setShown(shown)
	sm.rec.Status, sm.rec.Told, sm.rec.Tellings = ids[0], "", before+1
	if err := sm.store.Put(ctx, MessageKind, MessageName(sm.rec.Platform, sm.rec.Chat.ID, ids[0]), sm.rec.ID, MessageKeep); err != nil {
		sm.logger.Warn("cannot note what a message is about", "error", err)
	}
	return sm.entry.save(ctx)
}

// firstWords returns the text of the first message about a waiting request. If its id is
// lost, nobody can edit it later, so it says only what stays true and does not look as if
// it were about to change. "" means that the usual text will do.
func (w *wording) firstWords() string {
	p := w.prog
	if w.rec.Cancel || w.rec.Phase == Ended || w.away.tells || p.started || p.stuck != "" && p.position >= 0 {
		return ""
	}
	text := w.say("noted", nil)
	switch {
	case p.position < 0 && w.away.known:
		return w.say("noted_kept", nil)
	case p.position == 0:
		text = w.say("noted_first", nil)
	case p.position > 0:
		text = w.say("noted_place", locale.With{"place": p.position + 1})
	}
	if p.eta() > 0 {
		text += " " + w.say("noted_eta", locale.With{"time": w.duration(p.eta())})
	}
	return text
}

// show updates the status message when the outbox has time for it.
func (sm *statusMessage) show() {
	if sm.rec.Status == "" {
		return
	}
	post := sm.words.statusPost()
	if len(post.Files) == 0 && !sm.setShown(post.Text) {
		return
	}
	sm.outbox.Show(sm.platform, sm.rec.Chat, sm.rec.Status, post)
}

// setShown reports whether the text is new.
func (sm *statusMessage) setShown(text string) bool {
	sm.mu.Lock()
	defer sm.mu.Unlock()
	fresh := text != sm.shown
	sm.shown = text
	return fresh
}

// wantCancel records that the user has cancelled the request.
func (sm *statusMessage) wantCancel(ctx context.Context) error {
	if sm.rec.Cancel || sm.rec.Phase == Ended {
		return nil
	}
	sm.rec.Cancel = true
	if err := sm.entry.save(ctx); err != nil {
		return err
	}
	sm.show()
	return nil
}
