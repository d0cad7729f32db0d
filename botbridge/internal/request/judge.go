package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// Verdict is what moderation says about a file.
type Verdict string

// The verdicts. Unjudged is a file that nobody has looked at.
const (
	Unjudged Verdict = ""
	Allowed  Verdict = "allow"
	Covered  Verdict = "spoiler"
	Withheld Verdict = "refuse"
)

// Result is a file to be judged, with what was asked for.
type Result struct {
	Name, Words, Command string
	// Size is in bytes, 0 when unknown.
	Size int64
	Read func(ctx context.Context) ([]byte, error)
}

// Judge judges a file before anybody sees it. reason is for the user, "" for none. On an
// error, it has to be asked again.
type Judge func(ctx context.Context, r Result) (v Verdict, reason string, err error)

// maxJudged bounds the files that are judged, in bytes.
const maxJudged = 64 << 20

// judge gets verdicts for the files that have none: those still to be sent, or all.
// Verdicts are stored before anything is sent, so that a restart cannot change them.
func (fs *outputFiles) judge(ctx context.Context, all bool) error {
	if fs.moderate == nil {
		return nil
	}
	for i := range fs.rec.Outputs {
		out := &fs.rec.Outputs[i]
		if out.Verdict != Unjudged || out.State == Lost || !all && out.State != Unsent && out.State != TooBig {
			continue
		}
		verdict, reason, err := fs.moderate(ctx, Result{
			Name: path.Base(out.Ref.Filename), Words: fs.rec.Args.Words(), Command: fs.rec.Command, Size: out.Size,
			Read: func(ctx context.Context) ([]byte, error) { return fs.content(ctx, *out) },
		})
		switch {
		case errors.Is(err, hubapi.ErrNotFound):
			out.State = Lost
			continue
		case err != nil:
			return fmt.Errorf("judging a file: %w", err)
		}
		out.Verdict, out.Reason = verdict, platform.Clip(reason, 300)
		if verdict == Withheld {
			out.State, out.Link = Kept, ""
		}
		if err := fs.entry.save(ctx); err != nil {
			return err
		}
	}
	return nil
}

// content reads an output.
func (fs *outputFiles) content(ctx context.Context, out Output) ([]byte, error) {
	body, _, err := fs.hub.View(ctx, fs.rec.Tenant(), out.Ref)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxJudged))
	if err != nil {
		return nil, fmt.Errorf("reading an output: %w", err)
	}
	return data, nil
}

// ErrUnjudged means that files have no verdict yet and cannot be shown.
var ErrUnjudged = errors.New("the files are not judged yet")

// KeptError means that moderation does not let files be shown.
type KeptError struct {
	// N is how many files, Reason why, for the user; "" for no reason.
	N      int
	Reason string
}

func (e *KeptError) Error() string { return fmt.Sprintf("moderation keeps %d files back", e.N) }

// Say returns the text for the user.
func (e *KeptError) Say(texts *locale.Bundle, language string) string {
	if e.Reason == "" {
		return texts.Say(language, "kept_back", locale.With{"n": e.N})
	}
	return texts.Say(language, "kept_back_why", locale.With{"n": e.N, "reason": e.Reason})
}

// keptOf counts the withheld files among some.
func keptOf(outputs ...Output) *KeptError {
	e := &KeptError{}
	for _, out := range outputs {
		if out.State == Kept {
			e.N++
			e.Reason = cmp.Or(e.Reason, out.Reason)
		}
	}
	return e
}

// keptLine says that files are withheld and why; "" if none are.
func (w *wording) keptLine() string {
	if kept := keptOf(w.rec.Outputs...); kept.N > 0 {
		return kept.Say(w.texts, w.rec.Language)
	}
	return ""
}

// allKept reports whether all files are withheld.
func (r *Record) allKept() bool {
	for _, out := range r.Outputs {
		if out.State != Kept {
			return false
		}
	}
	return len(r.Outputs) > 0
}
