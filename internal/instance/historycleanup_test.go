package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// removals are the requests that a cleanup has made.
type removals struct {
	mu   sync.Mutex
	list [][]string
	fail error
	hang bool
}

func (r *removals) remove(ctx context.Context, ids ...string) error {
	r.mu.Lock()
	r.list = append(r.list, ids)
	fail, hang := r.fail, r.hang
	r.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return fail
}

// sizes returns the number of prompts in each request so far.
func (r *removals) sizes() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sizes []int
	for _, ids := range r.list {
		sizes = append(sizes, len(ids))
	}
	return sizes
}

func TestHistoryCleanup(t *testing.T) {
	add := func(h *historyCleanup, count int) {
		for n := range count {
			h.Add(fmt.Sprint(n))
		}
	}
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, r *removals, h *historyCleanup){
		"after the delay": func(t *testing.T, r *removals, h *historyCleanup) {
			add(h, 3)
			time.Sleep(cleanupDelay - 1)
			synctest.Wait()
			require.Empty(t, r.sizes())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.Equal(t, [][]string{{"0", "1", "2"}}, r.list)
			time.Sleep(time.Minute)
			add(h, 1)
			time.Sleep(cleanupDelay)
			synctest.Wait()
			require.Equal(t, []int{3, 1}, r.sizes())
		},
		"many at once": func(t *testing.T, r *removals, h *historyCleanup) {
			add(h, 2*cleanupCount+1)
			synctest.Wait()
			require.Equal(t, []int{cleanupCount, cleanupCount}, r.sizes())
			time.Sleep(cleanupDelay)
			synctest.Wait()
			require.Equal(t, []int{cleanupCount, cleanupCount, 1}, r.sizes())
		},
		"at the close": func(t *testing.T, r *removals, h *historyCleanup) {
			add(h, 2)
			h.close()
			require.Equal(t, []int{2}, r.sizes())
			add(h, cleanupCount)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, []int{2}, r.sizes(), "the client is closed")
		},
		"nothing to do": func(t *testing.T, r *removals, h *historyCleanup) {
			h.close()
			require.Empty(t, r.sizes())
		},
		"a failure is not repeated": func(t *testing.T, r *removals, h *historyCleanup) {
			r.fail = errors.New("no")
			add(h, 2)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, []int{2}, r.sizes())
			r.fail = nil
			add(h, 1)
			time.Sleep(cleanupDelay)
			synctest.Wait()
			require.Equal(t, []int{2, 1}, r.sizes())
		},
		"an instance that does not answer": func(t *testing.T, r *removals, h *historyCleanup) {
			r.hang = true
			add(h, cleanupCount+1)
			began := time.Now()
			h.close()
			require.Equal(t, cleanupAtClose, time.Since(began))
			require.ElementsMatch(t, []int{cleanupCount, 1}, r.sizes())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := &removals{}
				h := newHistoryCleanup(r.remove, slog.New(slog.DiscardHandler))
				defer h.close()
				test(t, r, h)
			})
		})
	}
}
