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

// Judge looks at a file before anybody sees it. reason is for the user, "" for none. An
// error means that it should be asked again.
type Judge func(ctx context.Context, r Result) (v Verdict, reason string, err error)

// maxJudged bounds what is read of a file to judge it, in bytes.
const maxJudged = 64 << 20

// judge has files looked at that nobody has looked at yet: those that are not sent yet, or
// all. Verdicts are stored before anything is sent, so that a restart cannot change them.
func (j *job) judge(ctx context.Context, all bool) error {
	if j.r.o.Judge == nil {
		return nil
	}
	for i := range j.rec.Outputs {
		out := &j.rec.Outputs[i]
		if out.Verdict != Unjudged || out.State == Lost || !all && out.State != Unsent && out.State != TooBig {
			continue
		}
		verdict, reason, err := j.r.o.Judge(ctx, Result{
			Name: path.Base(out.Ref.Filename), Words: j.rec.Args.Words(), Command: j.rec.Command, Size: out.Size,
			Read: func(ctx context.Context) ([]byte, error) { return j.content(ctx, *out) },
		})
		switch {
		case errors.Is(err, hubapi.ErrNotFound):
			out.State = Lost
			continue
		case err != nil:
			return fmt.Errorf("judging a file: %w", err)
		}
		out.Verdict, out.Reason = verdict, clipTo(reason, 300)
		if verdict == Withheld {
			out.State, out.Link = Kept, ""
		}
		if err := j.save(ctx); err != nil {
			return err
		}
	}
	return nil
}

// content reads an output.
func (j *job) content(ctx context.Context, out Output) ([]byte, error) {
	body, _, err := j.r.o.Hub.View(ctx, j.rec.Tenant(), out.Ref)
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

// ErrUnjudged means that files cannot be shown before somebody has looked at them.
var ErrUnjudged = errors.New("the files are not judged yet")

// KeptError means that moderation does not let files be shown.
type KeptError struct {
	// N is how many, Reason why, for the user; "" if nobody says.
	N      int
	Reason string
}

func (e *KeptError) Error() string { return fmt.Sprintf("moderation keeps %d files back", e.N) }

// Say says it to the user.
func (e *KeptError) Say(texts *locale.Bundle, language string) string {
	if e.Reason == "" {
		return texts.Say(language, "kept_back", locale.With{"n": e.N})
	}
	return texts.Say(language, "kept_back_why", locale.With{"n": e.N, "reason": e.Reason})
}

// keptOf counts the files among some that are kept back.
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

// keptLine says that files are not shown, and why; "" if all are.
func (j *job) keptLine() string {
	if kept := keptOf(j.rec.Outputs...); kept.N > 0 {
		return kept.Say(j.r.o.Texts, j.rec.Language)
	}
	return ""
}

// allKept reports whether nothing that was made is shown.
func (j *job) allKept() bool {
	for _, out := range j.rec.Outputs {
		if out.State != Kept {
			return false
		}
	}
	return len(j.rec.Outputs) > 0
}
