package request

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// saveTimeout bounds the last write while the bridge shuts down.
const saveTimeout = 3 * time.Second

// delivery sends what a request has made, and the last word about it.
type delivery struct {
	outbox   *outbox.Outbox
	logger   *slog.Logger
	replaces bool
	platform platform.Platform
	rec      *Record
	entry    *entry
	words    *wording
	files    *outputFiles
	apart    bool // its files are too large to send together
}

// deliver sends the files and the final message, and settles the user's share.
func (d *delivery) deliver(ctx context.Context) error {
	if d.rec.Outcome == Done {
		if err := d.deliverFiles(ctx); err != nil {
			return err
		}
		if err := d.deliverTexts(ctx); err != nil {
			return err
		}
	}
	if err := d.files.linkBig(ctx); err != nil {
		return err
	}
	if err := d.lastWord(ctx); err != nil {
		return err
	}
	return d.entry.finish(ctx)
}

// deliverFiles sends what has not been sent yet.
func (d *delivery) deliverFiles(ctx context.Context) error {
	for i := range d.rec.Outputs {
		out := &d.rec.Outputs[i]
		if out.State != Unsent || out.Media != "" {
			continue
		}
		switch err := d.files.inspect(ctx, out); {
		case errors.Is(err, hubapi.ErrNotFound):
			out.State = Lost
		case err != nil:
			return err
		}
	}
	if err := d.files.judge(ctx, false); err != nil {
		return err
	}
	if group := d.nextGroup(); d.inPlace(group) {
		return d.deliverInPlace(ctx, group)
	}
	for {
		group := d.nextGroup()
		if len(group) == 0 {
			return nil
		}
		if err := d.sendGroup(ctx, group); err != nil {
			return err
		}
	}
}

// inPlace reports whether the next files should replace the status message: they are all
// there are, and the platform or the configuration wants it.
func (d *delivery) inPlace(group []*Output) bool {
	return len(group) > 0 && len(group) == len(d.rec.Outputs) && d.rec.Status != "" &&
		(d.platform.Limits().InPlace || d.replaces && len(group) == 1)
}

// deliverInPlace turns the status message into the files. As that can be repeated safely,
// nobody ends up without them or with two. But no app notifies its user of an edited
// message.
func (d *delivery) deliverInPlace(ctx context.Context, group []*Output) error {
	post := platform.Post{Text: d.words.caption(d.platform.Limits().Caption), Buttons: d.words.doneButtons()}
	for _, out := range group {
		post.Files = append(post.Files, d.files.attachment(*out))
	}
	err := d.outbox.Edit(ctx, d.platform, d.rec.Chat, d.rec.Status, post)
	switch {
	case err == nil:
		for _, out := range group {
			out.Message = d.rec.Status
		}
		return d.mark(ctx, group, Arrived)
	case errors.Is(err, platform.ErrRefused) && demote(group):
		return d.deliverInPlace(ctx, group)
	case errors.Is(err, platform.ErrGone):
		// The user has deleted it: send a new one.
		d.rec.Status = ""
		return d.deliverFiles(ctx)
	case errors.Is(err, platform.ErrTooLarge) && len(group) > 1:
		// They are too large together: send them one by one.
		d.apart = true
		return d.deliverFiles(ctx)
	case errors.Is(err, platform.ErrTooLarge):
		return d.mark(ctx, group, TooBig)
	case errors.Is(err, platform.ErrNoMedia):
		return d.bar(ctx, group)
	case errors.Is(err, platform.ErrForbidden), errors.Is(err, platform.ErrRefused), errors.Is(err, hubapi.ErrNotFound):
		return d.mark(ctx, group, Lost)
	}
	return fmt.Errorf("showing a file: %w", err)
}

// nextGroup returns the outputs to send next: pictures that form an album, or else
// one file.
func (d *delivery) nextGroup() []*Output {
	var album []*Output
	if d.files.gridded() {
		for i := range d.rec.Outputs {
			album = append(album, &d.rec.Outputs[i])
		}
		return album
	}
	most := max(1, d.platform.Limits().Album)
	if d.apart {
		most = 1
	}
	for i := range d.rec.Outputs {
		out := &d.rec.Outputs[i]
		if out.State != Unsent {
			continue
		}
		if len(album) > 0 && out.After != album[0].After {
			return album // only these were sent together
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
func (d *delivery) sendGroup(ctx context.Context, group []*Output) error {
	post := platform.Post{Text: d.words.caption(d.platform.Limits().Caption), ReplyTo: d.rec.Message}
	for i := range d.rec.Outputs {
		if &d.rec.Outputs[i] == group[0] {
			post.ID = d.rec.postID(fmt.Sprintf("files/%d", i))
		}
	}
	d.rec.Grid = d.files.gridded()
	if d.rec.Grid {
		post.Files = []platform.Attachment{d.files.sheet()}
	} else {
		for _, out := range group {
			post.Files = append(post.Files, d.files.attachment(*out))
		}
	}
	if len(d.rec.Outputs) == 1 || d.rec.Grid {
		post.Buttons = d.words.doneButtons()
	}
	ids, err := d.outbox.SendOnce(ctx, d.platform, d.rec.Chat, post, outbox.Once{
		After: group[0].After, Since: group[0].since(), Asking: d.words.say("sending_again", nil), Known: d.entry.taken,
		Mark: func(ctx context.Context, sending bool, after string) error {
			if !sending {
				return d.unsend(ctx, group)
			}
			for _, out := range group {
				out.After = after
			}
			return d.mark(ctx, group, Sending)
		},
	})
	switch {
	case err == nil:
		for i, out := range group {
			if len(ids) > 0 {
				out.Message = ids[min(i, len(ids)-1)]
			}
		}
		return d.mark(ctx, group, Arrived)
	case errors.Is(err, outbox.ErrUnsettled):
		d.rec.doubt(d.platform) // for the next attempt
		return fmt.Errorf("sending files: %w", err)
	case errors.Is(err, platform.ErrUncertain):
		return d.mark(ctx, group, Unsure)
	case d.rec.Grid && (errors.Is(err, errNoSheet) || errors.Is(err, platform.ErrRefused) || errors.Is(err, platform.ErrNoMedia) || errors.Is(err, platform.ErrTooLarge) || errors.Is(err, hubapi.ErrNotFound)):
		d.rec.Grid, d.rec.NoGrid = false, true
		return d.mark(ctx, group, Unsent)
	case errors.Is(err, platform.ErrNoMedia):
		return d.bar(ctx, group)
	case errors.Is(err, platform.ErrForbidden), errors.Is(err, platform.ErrGone), errors.Is(err, hubapi.ErrNotFound):
		return d.mark(ctx, group, Lost)
	case errors.Is(err, platform.ErrTooLarge) && len(group) > 1:
		d.apart = true
		return d.mark(ctx, group, Unsent)
	case errors.Is(err, platform.ErrTooLarge):
		return d.mark(ctx, group, TooBig)
	case errors.Is(err, platform.ErrRefused):
		if !demote(group) {
			d.logger.Warn("the platform takes no file of a request", "request", d.rec.ID, "error", err)
			return d.mark(ctx, group, Lost)
		}
		return d.mark(ctx, group, Unsent)
	}
	// Not sent: the outbox was stopped, or the hub cannot provide the file right now.
	if group[0].State == Sending {
		if err := d.unsend(ctx, group); err != nil {
			return err
		}
	}
	return fmt.Errorf("sending files: %w", err)
}

// bar records that such files may not be sent: they are sent as plain files, or not at all.
func (d *delivery) bar(ctx context.Context, group []*Output) error {
	if demote(group) {
		return d.mark(ctx, group, Unsent)
	}
	d.rec.Barred = true
	return d.mark(ctx, group, Lost)
}

// unsend records that files were not sent, even while the bridge shuts down.
func (d *delivery) unsend(ctx context.Context, group []*Output) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	return d.mark(ctx, group, Unsent)
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

func (d *delivery) mark(ctx context.Context, group []*Output, s Sent) error {
	for _, out := range group {
		if s == Sending && out.Tried == 0 {
			out.Tried = time.Now().Unix()
		}
		if s == Unsent {
			out.Tried = 0
		}
		if s != Sending {
			out.After = ""
		}
		out.State = s
	}
	if s == Arrived {
		d.entry.noteShown(ctx, d.rec.Chat, group...)
	}
	return d.entry.save(ctx)
}

// lastWord settles the status message: it stays if the picture has replaced it, is deleted
// if the results came with their buttons, and otherwise says how the request ended.
func (d *delivery) lastWord(ctx context.Context) error {
	elsewhere := func(out Output) bool { return out.State != Arrived || out.Message != d.rec.Status }
	if d.rec.Outcome == Done && len(d.rec.Outputs) > 0 && d.rec.Status != "" && !slices.ContainsFunc(d.rec.Outputs, elsewhere) {
		return nil
	}
	if d.rec.Outcome == Done && (d.rec.shownAtOnce() || d.rec.saidAtOnce()) {
		if slices.ContainsFunc(d.rec.Texts, func(t Text) bool { return t.Message == d.rec.Status }) {
			return nil
		}
		if d.rec.Status == "" {
			return nil
		}
		err := d.outbox.Delete(ctx, d.platform, d.rec.Chat, d.rec.Status)
		return d.settled(err)
	}
	post := d.words.endPost()
	var err error
	if d.rec.Status != "" {
		err = d.outbox.Edit(ctx, d.platform, d.rec.Chat, d.rec.Status, post)
	}
	if d.rec.Status == "" || errors.Is(err, platform.ErrGone) || errors.Is(err, platform.ErrRefused) {
		var ids []string
		post.ID = d.rec.postID("end")
		if ids, err = d.outbox.Send(ctx, d.platform, d.rec.Chat, post); len(ids) > 0 {
			d.rec.Status = ids[0]
			d.entry.noteMessage(ctx, d.rec.Chat, ids[0])
		}
	}
	return d.settled(err)
}

// settled returns nil if it is known whether the last message arrived, or never will be.
// Otherwise the message is sent again.
func (d *delivery) settled(err error) error {
	if errors.Is(err, outbox.ErrGaveUp) {
		d.logger.Warn("nobody could be told how a request ended", "request", d.rec.ID, "error", err)
		d.entry.untold = true
		return nil
	}
	if platform.Permanent(err) {
		return nil
	}
	return err
}

// postID names a message of the request; the name is the same after a restart.
func (r *Record) postID(what string) string { return IDOf(r.ID + "/" + what) }
