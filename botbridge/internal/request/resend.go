package request

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// SendAgain resends the files of a finished request at the user's request: all of
// them as plain files, or those that may not have arrived.
func (r *Runner) SendAgain(ctx context.Context, id string, asFiles bool) error {
	return r.sendAgain(ctx, id, asFiles, -1)
}

// SendOne sends one output of a finished request as a plain file.
func (r *Runner) SendOne(ctx context.Context, id string, output int) error {
	return r.sendAgain(ctx, id, true, output)
}

func (r *Runner) sendAgain(ctx context.Context, id string, asFiles bool, only int) error {
	rec, version, err := r.load(ctx, id)
	if err != nil {
		return err
	}
	j := newJob(r, rec, version, r.o.Platform(rec.Platform), 0)
	if j.platform == nil {
		return nil
	}
	var copies []string
	if unjudged := func(out Output) bool { return out.Verdict == Unjudged }; rec.Phase != Over && r.o.Judge != nil && slices.ContainsFunc(rec.Outputs, unjudged) {
		// The goroutine that drives the request is about to judge them, and nobody else may
		// store a verdict meanwhile.
		return fmt.Errorf("resending request %s: %w", id, ErrUnjudged)
	}
	// Also those that were sent before moderation was turned on.
	if err := j.files.judge(ctx, true); err != nil {
		return err
	}
	if only >= 0 && only < len(j.rec.Outputs) && j.rec.Outputs[only].State == Kept {
		return keptOf(j.rec.Outputs[only])
	}
	if j.rec.allKept() {
		return keptOf(j.rec.Outputs...)
	}
	for i := range j.rec.Outputs {
		out := &j.rec.Outputs[i]
		if !asFiles && out.State != Unsure || only >= 0 && i != only || out.State == Kept {
			continue
		}
		shown := *out
		if asFiles {
			shown.Media = platform.Document
		}
		post := platform.Post{ReplyTo: rec.Message, Files: []platform.Attachment{j.files.attachment(shown)}}
		ids, err := r.o.Outbox.SendOnce(ctx, j.platform, rec.Chat, post, outbox.Once{Asking: j.words.say("sending_again", nil), Known: j.entry.taken})
		copies = append(copies, ids...)
		for _, message := range ids {
			j.entry.noteMessage(ctx, rec.Chat, message, i)
		}
		switch {
		case err == nil && !asFiles:
			out.State = Arrived
			if len(ids) > 0 {
				out.Message = ids[0]
			}
		case err == nil, errors.Is(err, platform.ErrUncertain), errors.Is(err, outbox.ErrUnsettled):
		case errors.Is(err, hubapi.ErrNotFound):
			return fmt.Errorf("the files of request %s are gone: %w", id, err)
		default:
			return err
		}
	}
	if !asFiles && rec.Phase == Over {
		_, err = r.o.Store.Requests.Save(ctx, id, j.entry.version, j.rec)
	}
	return errors.Join(err, r.NoteCopies(ctx, id, copies...))
}

const (
	// maxCopies bounds how many later messages are noted.
	maxCopies = 50
	// noteTries is how often noting one is tried while others write the same record.
	noteTries = 5
)

// NoteCopies notes later messages that show some of a request, so that they are removed
// with it. Nothing is noted for a request that is not over.
func (r *Runner) NoteCopies(ctx context.Context, id string, messages ...string) error {
	for range noteTries {
		rec, version, err := r.load(ctx, id)
		if len(messages) == 0 || errors.Is(err, state.ErrNotFound) || err == nil && rec.Phase != Over {
			return nil
		}
		if err != nil {
			return err
		}
		rec.Copies = append(rec.Copies, messages...)
		rec.Copies = rec.Copies[max(0, len(rec.Copies)-maxCopies):]
		if _, err = r.o.Store.Requests.Save(ctx, id, version, &rec); !errors.Is(err, state.ErrStale) {
			return err
		}
	}
	return nil
}
