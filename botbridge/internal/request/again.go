package request

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// SendTo sends outputs of a finished request again, to any chat of its platform: a single
// one by copying its message where the platform can, the rest from the hub. post says what
// it replies to and who can read it.
func (r *Runner) SendTo(ctx context.Context, rec Record, outputs []int, to platform.Chat, post platform.Post) error {
	j := newJob(r, rec, 0, r.o.Platform(rec.Platform), 0)
	if j.platform == nil {
		return nil
	}
	if r.o.Judge != nil {
		// Also those that were sent before moderation was turned on.
		fresh, version, err := r.load(ctx, rec.ID)
		if err != nil {
			return err
		}
		*j.rec, j.entry.version = fresh, version
		if err := j.files.judge(ctx, true); err != nil {
			return err
		}
	}
	j.files.bare = !to.Group
	var group []*Output
	var kept []Output
	for _, i := range outputs {
		switch {
		case i < 0 || i >= len(j.rec.Outputs) || j.rec.Outputs[i].State == TooBig:
		case j.rec.Outputs[i].State == Kept:
			kept = append(kept, j.rec.Outputs[i])
		default:
			group = append(group, &j.rec.Outputs[i])
		}
	}
	if len(kept) > 0 && len(group) == 0 {
		return keptOf(kept...)
	}
	post.Text = j.words.caption(j.platform.Limits().Caption)
	for most := max(1, j.platform.Limits().Album); len(group) > 0; {
		n := 0
		for n < min(most, len(group)) && (n == 0 || album(group[n]) && album(group[0])) {
			n++
		}
		if err := j.sendTo(ctx, group[:n], to, post); err != nil {
			return err
		}
		group = group[n:]
		post.Text = ""
	}
	return nil
}

// album reports whether an output can be part of an album.
func album(out *Output) bool { return out.Media == platform.Photo || out.Media == platform.Video }

func (j *job) sendTo(ctx context.Context, group []*Output, to platform.Chat, post platform.Post) error {
	for _, out := range group {
		post.Files = append(slices.Clip(post.Files), j.files.attachment(*out))
	}
	if one := group[0]; len(group) == 1 && one.State == Arrived && one.Message != "" && !j.rec.Grid && one.Verdict != Covered && !j.rec.Cover {
		post.Copy = &platform.Original{Chat: j.rec.Chat.ID, Message: one.Message}
	}
	ids, err := j.r.o.Outbox.SendOnce(ctx, j.platform, to, post, outbox.Once{Asking: j.words.say("sending_again", nil), Known: j.entry.taken})
	switch {
	case errors.Is(err, platform.ErrUncertain), errors.Is(err, outbox.ErrUnsettled):
		return nil // it may have arrived, and can be asked for again
	case errors.Is(err, hubapi.ErrNotFound):
		return fmt.Errorf("the files of request %s are gone: %w", j.rec.ID, err)
	case err != nil:
		return err
	}
	for i, out := range group {
		if len(ids) > 0 {
			out.Message = ids[min(i, len(ids)-1)]
		}
	}
	j.entry.noteShown(ctx, to, group...)
	if to.ID == j.rec.Chat.ID {
		return j.r.NoteCopies(ctx, j.rec.ID, ids...)
	}
	return nil
}
