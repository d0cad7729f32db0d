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

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/system/network/loopback"
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

// If a reader of an instance's messages panics, it loses its socket and opens a new one.
func TestPanicOfASocketsReader(t *testing.T) {
	t.Parallel()
	server := sure(sim.New(sim.Config{}))
	web := loopback.Serve(server.Handler())
	t.Cleanup(func() {
		server.Kill()
		web.CloseClientConnections()
		web.Close()
		server.Close()
	})
	client := sure(comfyui.NewClient(web.URL, comfyui.Options{Dial: loopback.Dial}))
	type row struct {
		up    int // which opening panics
		frame bool
		lost  bool // whether the socket is lost
	}
	for name, tt := range map[string]row{
		"at a frame": {frame: true, lost: true},
		"at opening": {up: 1},
	} {
		ctx, stop := context.WithTimeout(t.Context(), deadlineOfLinks)
		ups := 0
		var lost error
		f := &eventSocket{
			alive: func() {}, patience: func() time.Duration { return time.Minute },
			client: client, sid: uuid.NewString, log: slog.New(slog.DiscardHandler),
			up: func(context.Context) error {
				ups++
				switch ups {
				case tt.up:
					panic("broken")
				case 2:
					stop()
				}
				return nil
			},
			down: func(err error) { lost = err },
			frame: func(comfyui.Frame) {
				if tt.frame {
					panic("broken")
				}
			},
		}
		f.run(ctx)
		stop()
		require.Equal(t, 2, ups, "it is opened again: %s", name)
		require.Equal(t, tt.lost, errors.Is(lost, panics.ErrPanic), name)
	}
}
