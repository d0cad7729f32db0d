//go:build unix

package request

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// A payment is kept if anything is shown for it, and given back otherwise.
func TestChargeIsEarned(t *testing.T) {
	t.Parallel()
	store := ledStore(t)
	keepBack := func(context.Context, Result) (Verdict, string, error) { return Withheld, "no", nil }
	for name, c := range map[string]struct {
		change func(*Record)
		judge  Judge
		quiet  int
		want   state.ChargeState
	}{
		"done":                    {want: state.Settled},
		"in doubt":                {quiet: 1, want: state.Settled},
		"failed":                  {change: func(r *Record) { r.Outcome = Failed }, want: state.Refund},
		"refused":                 {change: func(r *Record) { r.Outcome = Refused }, want: state.Refund},
		"stopped":                 {change: func(r *Record) { r.Outcome = Cancelled }, want: state.Refund},
		"kept back":               {judge: keepBack, want: state.Refund},
		"nothing was made":        {change: func(r *Record) { r.Outputs = nil }, want: state.Refund},
		"nothing could be sent":   {change: func(r *Record) { r.Outputs[0].State = Lost }, want: state.Refund},
		"words are something too": {change: func(r *Record) { r.Outputs, r.Texts = nil, []Text{{Text: "a fox"}} }, want: state.Settled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &silent{limits: platform.Limits{Photo: 1 << 20, File: 1 << 20, Text: 4096, Caption: 1024}, quiet: c.quiet, judge: c.judge}
			id := "charge " + name
			_, err := store.Payments.Pay(t.Context(), state.Charge{ID: id, Who: "silent:7", User: "7", Platform: "silent", Price: 3, Request: IDOf(id)}, "", Record{})
			require.NoError(t, err)
			settle(t, store, p, func(r *Record) {
				r.Charge, r.Paid = id, 3
				if c.change != nil {
					c.change(r)
				}
			})
			got, err := store.Payments.Charge(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, c.want, got.State)
			due, err := store.Payments.Refunds(t.Context(), time.Now())
			require.NoError(t, err)
			found := false
			for _, d := range due {
				found = found || d.ID == id
			}
			require.Equal(t, c.want == state.Refund, found)
			told := ""
			for _, post := range append(p.sends, p.edits...) {
				told += post.Text
			}
			if c.want == state.Refund {
				require.Contains(t, told, "You're getting your 3 Stars back.")
			} else {
				require.NotContains(t, told, "Stars")
			}
		})
	}
}
