package outbox

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// recalling is a platform that knows posts for a minute, and can be asked for them afterwards.
type recalling struct {
	fake
	there []string
	err   error
	since time.Time
}

func (r *recalling) Recall(_ context.Context, _ platform.Chat, _ platform.Post, since time.Time, _ platform.Known) ([]string, error) {
	if r.since.IsZero() { // when nothing is there, a later attempt may be in doubt, too
		r.since = since
	}
	return r.there, r.err
}

// When the platform no longer knows the id of a post that may have arrived, it is asked for what
// is in the chat, and only what is not there is sent again.
func TestRecall(t *testing.T) {
	type row struct {
		there []string
		fails error
		err   error
		sends int // after the first attempt and its answer that was lost
	}
	beside.Cases(t, map[string]row{
		"it is there":     {there: []string{"m9"}},
		"it is not there": {sends: 1},
		"nobody may look": {fails: platform.ErrForbidden, err: platform.ErrUncertain},
	}, func(t *testing.T, c row) {
		synctest.Test(t, func(t *testing.T) {
			p := &recalling{there: c.there, err: c.fails}
			p.limits = platform.Limits{KnowsPosts: true, KnowsPostsFor: time.Minute}
			begin, lost := time.Now(), 0
			p.fail = func(n int) error {
				if time.Since(begin) < 2*time.Minute {
					lost = n
					return fmt.Errorf("%w: cut", platform.ErrUncertain)
				}
				return nil
			}
			b := New(Options{})
			ids, err := b.SendOnce(t.Context(), p, home, platform.Post{Text: "x"}, Once{})
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.sends, p.calls-lost)
			if c.there != nil {
				require.Equal(t, c.there, ids)
			}
			require.WithinDuration(t, begin, p.since, time.Second, "since the first attempt that may have arrived")

			// The next process is told of an attempt by the one before.
			p.fail, p.calls = nil, 0
			_, err = b.SendOnce(t.Context(), p, home, platform.Post{Text: "x"}, Once{Since: begin})
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.sends, p.calls)
			b.Close()
		})
	})
}
