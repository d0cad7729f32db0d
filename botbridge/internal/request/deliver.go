package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// saveTimeout bounds the last write while the bridge shuts down.
const saveTimeout = 3 * time.Second

// deliver sends the files and the final message, and settles the user's share.
func (j *job) deliver(ctx context.Context) error {
	if j.rec.Outcome == Done {
		if err := j.deliverFiles(ctx); err != nil {
			return err
		}
		if err := j.deliverTexts(ctx); err != nil {
			return err
		}
	}
	if err := j.linkBig(ctx); err != nil {
		return err
	}
	if err := j.lastWord(ctx); err != nil {
		return err
	}
	return j.finish(ctx)
}

// deliverFiles sends what has not been sent yet.
func (j *job) deliverFiles(ctx context.Context) error {
	for i := range j.rec.Outputs {
		out := &j.rec.Outputs[i]
		if out.State != Unsent || out.Media != "" {
			continue
		}
		switch err := j.inspect(ctx, out); {
		case errors.Is(err, hubapi.ErrNotFound):
			out.State = Lost
		case err != nil:
			return err
		}
	}
	if err := j.judge(ctx, false); err != nil {
		return err
	}
	if group := j.nextGroup(); j.inPlace(group) {
		return j.deliverInPlace(ctx, group)
	}
	for {
		group := j.nextGroup()
		if len(group) == 0 {
			return nil
		}
		if err := j.sendGroup(ctx, group); err != nil {
			return err
		}
	}
}

// inPlace reports whether the next files should replace the status message: they are all
// there are, and the platform or the configuration wants it.
func (j *job) inPlace(group []*Output) bool {
	return len(group) > 0 && len(group) == len(j.rec.Outputs) && j.rec.Status != "" &&
		(j.platform.Limits().InPlace || j.r.o.InPlace && len(group) == 1)
}

// deliverInPlace turns the status message into the files. As that can be repeated safely,
// nobody ends up without them or with two. But no app notifies its user of an edited
// message.
func (j *job) deliverInPlace(ctx context.Context, group []*Output) error {
	post := platform.Post{Text: j.caption(j.platform.Limits().Caption), Buttons: j.doneButtons()}
	for _, out := range group {
		post.Files = append(post.Files, j.attachment(*out))
	}
	err := j.r.o.Outbox.Edit(ctx, j.platform, j.rec.Chat, j.rec.Status, post)
	switch {
	case err == nil:
		for _, out := range group {
			out.Message = j.rec.Status
		}
		return j.mark(ctx, group, Arrived)
	case errors.Is(err, platform.ErrRefused) && demote(group):
		return j.deliverInPlace(ctx, group)
	case errors.Is(err, platform.ErrGone):
		// The user has deleted it: send a new one.
		j.rec.Status = ""
		return j.deliverFiles(ctx)
	case errors.Is(err, platform.ErrTooLarge) && len(group) > 1:
		// They are too large together: send them one by one.
		j.apart = true
		return j.deliverFiles(ctx)
	case errors.Is(err, platform.ErrTooLarge):
		return j.mark(ctx, group, TooBig)
	case errors.Is(err, platform.ErrForbidden), errors.Is(err, platform.ErrRefused):
		return j.mark(ctx, group, Lost)
	case errors.Is(err, hubapi.ErrNotFound):
		return j.mark(ctx, group, Lost)
	}
	return fmt.Errorf("showing a file: %w", err)
}

// nextGroup returns the outputs to send next: pictures that form an album, or else
// one file.
func (j *job) nextGroup() []*Output {
	var album []*Output
	if j.gridded() {
		for i := range j.rec.Outputs {
			album = append(album, &j.rec.Outputs[i])
		}
		return album
	}
	most := max(1, j.platform.Limits().Album)
	if j.apart {
		most = 1
	}
	for i := range j.rec.Outputs {
		out := &j.rec.Outputs[i]
		if out.State != Unsent {
			continue
		}
		if out.Media != platform.Photo && out.Media != platform.Video {
			if len(album) > 0 {
				return album
			}
			return []*Output{out}
		}
		if album = append(album, out); len(album) == most {
			break
		}
	}
	return album
}

// sendGroup sends one message with files. It marks them as being sent just before, and
// records the result after.
func (j *job) sendGroup(ctx context.Context, group []*Output) error {
	post := platform.Post{Text: j.caption(j.platform.Limits().Caption), ReplyTo: j.rec.Message}
	for i := range j.rec.Outputs {
		if &j.rec.Outputs[i] == group[0] {
			post.ID = j.postID(fmt.Sprintf("files/%d", i))
		}
	}
	j.rec.Grid = j.gridded()
	if j.rec.Grid {
		post.Files = []platform.Attachment{j.sheet()}
	} else {
		for _, out := range group {
			post.Files = append(post.Files, j.attachment(*out))
		}
	}
	if len(j.rec.Outputs) == 1 || j.rec.Grid {
		post.Buttons = j.doneButtons()
	}
	ids, err := j.r.o.Outbox.SendOnce(ctx, j.platform, j.rec.Chat, post, func(ctx context.Context, sending bool) error {
		if sending {
			return j.mark(ctx, group, Sending)
		}
		return j.unsend(ctx, group)
	})
	switch {
	case err == nil:
		for i, out := range group {
			if len(ids) > 0 {
				out.Message = ids[min(i, len(ids)-1)]
			}
		}
		return j.mark(ctx, group, Arrived)
	case errors.Is(err, platform.ErrUncertain):
		return j.mark(ctx, group, Unsure)
	case j.rec.Grid && (errors.Is(err, errNoSheet) || errors.Is(err, platform.ErrRefused) || errors.Is(err, platform.ErrTooLarge) || errors.Is(err, hubapi.ErrNotFound)):
		j.rec.Grid, j.rec.NoGrid = false, true
		return j.mark(ctx, group, Unsent)
	case errors.Is(err, platform.ErrForbidden), errors.Is(err, platform.ErrGone):
		return j.mark(ctx, group, Lost)
	case errors.Is(err, platform.ErrTooLarge) && len(group) > 1:
		j.apart = true
		return j.mark(ctx, group, Unsent)
	case errors.Is(err, platform.ErrTooLarge):
		return j.mark(ctx, group, TooBig)
	case errors.Is(err, platform.ErrRefused):
		if !demote(group) {
			j.r.o.Logger.Warn("the platform takes no file of a request", "request", j.rec.ID, "error", err)
			return j.mark(ctx, group, Lost)
		}
		return j.mark(ctx, group, Unsent)
	case errors.Is(err, hubapi.ErrNotFound):
		return j.mark(ctx, group, Lost)
	}
	// Not sent: the outbox was stopped, or the hub cannot provide the file right now.
	if group[0].State == Sending {
		if err := j.unsend(ctx, group); err != nil {
			return err
		}
	}
	return fmt.Errorf("sending files: %w", err)
}

// unsend records that files were not sent, even while the bridge shuts down.
func (j *job) unsend(ctx context.Context, group []*Output) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	return j.mark(ctx, group, Unsent)
}

// demote turns files that the platform refuses as pictures and the like into plain files,
// and reports whether that changes anything.
func demote(group []*Output) bool {
	changed := false
	for _, out := range group {
		if out.Media != platform.Document {
			out.Media, changed = platform.Document, true
		}
	}
	return changed
}

func (j *job) mark(ctx context.Context, group []*Output, s Sent) error {
	for _, out := range group {
		if s == Sending && out.Tried == 0 {
			out.Tried = time.Now().Unix()
		}
		if s == Unsent {
			out.Tried = 0
		}
		out.State = s
	}
	if s == Arrived {
		j.noteShown(ctx, j.rec.Chat, group...)
	}
	return j.save(ctx)
}

// lastWord settles the status message: it stays if the picture has replaced it, is deleted
// if the results came with their buttons, and otherwise says how the request ended.
func (j *job) lastWord(ctx context.Context) error {
	elsewhere := func(out Output) bool { return out.State != Arrived || out.Message != j.rec.Status }
	if j.rec.Outcome == Done && len(j.rec.Outputs) > 0 && j.rec.Status != "" && !slices.ContainsFunc(j.rec.Outputs, elsewhere) {
		return nil
	}
	if j.rec.Outcome == Done && (j.shownAtOnce() || j.saidAtOnce()) {
		if slices.ContainsFunc(j.rec.Texts, func(t Text) bool { return t.Message == j.rec.Status }) {
			return nil
		}
		if j.rec.Status == "" {
			return nil
		}
		err := j.r.o.Outbox.Delete(ctx, j.platform, j.rec.Chat, j.rec.Status)
		return j.settled(err)
	}
	post := j.endPost()
	var err error
	if j.rec.Status != "" {
		err = j.r.o.Outbox.Edit(ctx, j.platform, j.rec.Chat, j.rec.Status, post)
	}
	if j.rec.Status == "" || errors.Is(err, platform.ErrGone) || errors.Is(err, platform.ErrRefused) {
		var ids []string
		post.ID = j.postID("end")
		if ids, err = j.r.o.Outbox.Send(ctx, j.platform, j.rec.Chat, post); len(ids) > 0 {
			j.rec.Status = ids[0]
			j.noteMessage(ctx, j.rec.Chat, ids[0])
		}
	}
	return j.settled(err)
}

// settled returns nil if it is known whether the last message arrived, or never will be.
// Otherwise the message is sent again.
func (j *job) settled(err error) error {
	if errors.Is(err, outbox.ErrGaveUp) {
		j.r.o.Logger.Warn("nobody could be told how a request ended", "request", j.rec.ID, "error", err)
		j.untold = true
		return nil
	}
	if platform.Permanent(err) {
		return nil
	}
	return err
}

// fate returns how the request ended for its user: Done only if every file has arrived.
func (j *job) fate() Outcome {
	if j.rec.Outcome != Done {
		return j.rec.Outcome
	}
	fate := Done
	for _, text := range j.rec.Texts {
		if text.Lost {
			return Undelivered
		}
	}
	for _, out := range j.rec.Outputs {
		switch {
		case out.State == Lost || out.State == TooBig && out.Link == "":
			return Undelivered
		case out.State == Kept && fate == Done:
			fate = Hidden
		case out.State == Unsure:
			fate = InDoubt
		case out.State == TooBig && j.untold:
			return Undelivered // its link was shown
		}
	}
	return fate
}

// postID names a message of the request; the name is the same after a restart.
func (j *job) postID(what string) string { return IDOf(j.rec.ID + "/" + what) }

// finish removes the request from the list of unfinished ones.
func (j *job) finish(ctx context.Context) error {
	if err := j.settleCharge(ctx); err != nil {
		return err
	}
	j.rec.Phase = Over
	j.rec.Graph = nil
	for i := range j.rec.Texts {
		j.rec.Texts[i].Text = ""
	}
	end := state.End{
		Who: j.rec.Tenant(), Group: j.rec.Counted, Asked: j.rec.Asked, Command: j.rec.Command, Outcome: string(j.fate()), Done: j.rec.Outcome == Done,
	}
	if j.rec.Outcome == Done {
		end.Took = j.rec.Took
	} else {
		end.Refund = j.rec.Price
	}
	if j.rec.Metered {
		end.Price = (j.rec.Took + 999) / 1000
	}
	err := retry.New(firstPause, maxPause).Do(ctx, func(ctx context.Context) error {
		_, err := j.r.o.Store.Finish(ctx, j.rec.ID, j.version, &j.rec, end)
		return err
	}, isUnavailable)
	if err != nil {
		j.rec.Phase = Ended // it is not over yet
		return err
	}
	j.r.o.Observe(j.rec.Command, j.fate())
	return nil
}
