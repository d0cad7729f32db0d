package request

import "context"

// Link returns a link to output n of a request, from 0, that works for a day; "" if there
// are no links or the file is withheld.
func (r *Runner) Link(ctx context.Context, rec Record, n int) (string, error) {
	out := rec.Outputs[n]
	if out.State == Kept || out.State == Lost || out.Verdict == Withheld || r.o.Judge != nil && out.Verdict == Unjudged {
		return "", nil
	}
	return newJob(r, rec, 0, nil, 0).files.link(ctx, out)
}
