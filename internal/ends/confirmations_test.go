package ends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// told records what a confirmations reports.
type told struct {
	mu    sync.Mutex
	trips [][]queue.Confirmed
	fail  error
}

func (r *told) tell(ctx context.Context, ends ...queue.Confirmed) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.fail == nil {
		r.trips = append(r.trips, ends)
	}
	return r.fail
}

func (r *told) answer(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *told) sizes() (sizes []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ends := range r.trips {
		sizes = append(sizes, len(ends))
	}
	return sizes
}

func confirmed(n int) queue.Confirmed { return queue.Confirmed{Tenant: "tenant", ID: fmt.Sprint(n)} }

func TestConfirmations(t *testing.T) {
	beside.Cases(t, map[string]func(t *testing.T, c *Confirmations, r *told){
		"the first goes at once, and the next together": func(t *testing.T, c *Confirmations, r *told) {
			c.add(confirmed(0))
			synctest.Wait()
			require.Equal(t, []int{1}, r.sizes())
			for n := range 2*confirmBatch + 7 {
				c.add(confirmed(1 + n))
			}
			synctest.Wait()
			require.Equal(t, []int{1}, r.sizes())
			time.Sleep(3 * confirmPause)
			synctest.Wait()
			require.Equal(t, []int{1, confirmBatch, confirmBatch, 7}, r.sizes())
			for n, end := range slices.Concat(r.trips...) {
				require.Equal(t, confirmed(n), end)
			}
			time.Sleep(confirmPause)
			c.add(confirmed(0))
			synctest.Wait()
			require.Len(t, r.sizes(), 5, "after a pause it is the first again")
		},
		"what Redis cannot be told is told later": func(t *testing.T, c *Confirmations, r *told) {
			r.answer(queue.ErrUnavailable)
			for n := range maxUnsaid + 10 {
				c.add(confirmed(n))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Empty(t, r.sizes())
			require.Len(t, c.unsaid, maxUnsaid)
			require.ErrorIs(t, c.flush(t.Context()), queue.ErrUnavailable)
			r.answer(nil)
			require.NoError(t, c.flush(t.Context()))
			require.Empty(t, c.unsaid)
			require.Len(t, slices.Concat(r.trips...), maxUnsaid)
		},
		"what is wrong is not told for ever": func(t *testing.T, c *Confirmations, r *told) {
			r.answer(errors.New("corrupt"))
			c.add(confirmed(0))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Empty(t, c.unsaid)
		},
		"the rest is told at the end": func(t *testing.T, c *Confirmations, r *told) {
			for n := range 5 {
				c.add(confirmed(n))
			}
			c.Close(t.Context())
			require.Len(t, slices.Concat(r.trips...), 5)
			c.Close(t.Context())
			c.add(confirmed(9))
		},
	}, func(t *testing.T, test func(t *testing.T, c *Confirmations, r *told)) {
		synctest.Test(t, func(t *testing.T) {
			r := &told{}
			c := NewConfirmations(r.tell, func() *slog.Logger { return slog.New(slog.DiscardHandler) })
			test(t, c, r)
			c.Close(t.Context())
		})
	})
}
