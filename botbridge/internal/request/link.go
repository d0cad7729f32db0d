package request

import "context"

// Link returns where anybody can fetch output n of a request, from 0, for a day; "" if
// nowhere: there are no links, or the file is not shown.
func (r *Runner) Link(ctx context.Context, rec Record, n int) (string, error) {
	out := rec.Outputs[n]
	if out.State == Kept || out.State == Lost || out.Verdict == Withheld || r.o.Judge != nil && out.Verdict == Unjudged {
		return "", nil
	}
	return (&job{r: r, rec: rec}).link(ctx, out)
}
