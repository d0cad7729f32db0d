package request

import (
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// tellTries is how many status messages of a request may have an unknown fate. After that
// it gets none; its result comes anyway.
const tellTries = 3

// tell posts the status message, if that has not been done.
//
// A bridge that is killed after the platform has taken the message and before its id is
// stored never learns the id, and no platform tells it later. Guessing it from the ids
// around it is no way out: the bridge may edit and delete other messages there. So the
// intent is stored first, the words of the first message stay true whatever happens, and
// the message after one of unknown fate says that it alone counts. A button under the
// lost one removes it; see conversation.
func (j *job) tell(ctx context.Context) error {
	defer j.tellOnce.Do(func() { close(j.told) })
	for pauses := retry.New(firstPause, maxPause); ; {
		err := j.tellOnceMore(ctx)
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
func (j *job) tellOnceMore(ctx context.Context) error {
	limits := j.platform.Limits()
	knows := limits.KnowsPosts && limits.KnowsPostsFor == 0
	if j.rec.Status != "" || j.rec.Phase == Over || j.rec.Tellings >= tellTries && !knows {
		return nil
	}
	before := j.rec.Tellings
	post := j.statusPost()
	post.ID = j.postID("status")
	shown := post.Text
	if words := j.firstWords(); words != "" {
		post.Text = words
	}
	if before > 0 && !knows {
		post.Text += "\n" + j.say("status_void", nil)
	}
	ids, err := j.r.o.Outbox.SendOnce(ctx, j.platform, j.rec.Chat, post, func(ctx context.Context, sending bool) error {
		tellings := before
		if sending {
			tellings++
		}
		if j.rec.Tellings == tellings {
			return nil
		}
		j.rec.Tellings = tellings
		return j.save(ctx)
	})
	if errors.Is(err, platform.ErrForbidden) {
		// Nobody would see the picture.
		return j.wantCancel(ctx)
	}
	if err != nil && !platform.Permanent(err) {
		return err
	}
	if len(ids) == 0 {
		return nil
	}
	j.setShown(shown)
	j.rec.Status = ids[0]
	if err := j.r.o.Store.Put(ctx, MessageKind, MessageName(j.rec.Platform, j.rec.Chat.ID, ids[0]), j.rec.ID, MessageKeep); err != nil {
		j.r.o.Logger.Warn("cannot note what a message is about", "error", err)
	}
	return j.save(ctx)
}

// firstWords returns the text of the first message about a waiting request. If its id is
// lost, nobody can edit it later, so it says only what stays true and does not look as if
// it were about to change. "" means that the usual text will do.
func (j *job) firstWords() string {
	p := j.prog
	if j.rec.Cancel || j.rec.Phase == Ended || j.away.tells || p.started || p.stuck != "" && p.position >= 0 {
		return ""
	}
	text := j.say("noted", nil)
	switch {
	case p.position < 0 && j.away.known:
		return j.say("noted_kept", nil)
	case p.position == 0:
		text = j.say("noted_first", nil)
	case p.position > 0:
		text = j.say("noted_place", locale.With{"place": p.position + 1})
	}
	if p.eta() > 0 {
		text += " " + j.say("noted_eta", locale.With{"time": j.duration(p.eta())})
	}
	return text
}

// show updates the status message when the outbox has time for it.
func (j *job) show() {
	if j.rec.Status == "" {
		return
	}
	post := j.statusPost()
	if len(post.Files) == 0 && !j.setShown(post.Text) {
		return
	}
	j.r.o.Outbox.Show(j.platform, j.rec.Chat, j.rec.Status, post)
}

// setShown reports whether the text is new.
func (j *job) setShown(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	fresh := text != j.shown
	j.shown = text
	return fresh
}
