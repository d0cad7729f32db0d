package intake

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const mib = 1 << 20

// granted reports whether memory comes without waiting, and keeps it.
func granted(t *testing.T, g *gate, share string, weight int64) bool {
	t.Helper()
	leave, err := g.enter(t.Context(), share, weight, time.Nanosecond)
	if err == nil {
		t.Cleanup(leave)
	}
	return err == nil
}

// Large bodies of one sender leave room for those of others and for small ones.
func TestGateIsShared(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		g := &gate{}
		g.resize(400 * mib) // 300 for large ones
		require.True(t, granted(t, g, "greedy", 100*mib))
		require.False(t, granted(t, g, "greedy", 100*mib), "half of it is the most")
		require.True(t, granted(t, g, "modest", 100*mib))
		require.True(t, granted(t, g, "third", 100*mib))
		require.False(t, granted(t, g, "fourth", 20*mib), "now it is full")
		for n := range 25 {
			require.True(t, granted(t, g, fmt.Sprint("small", n), 4*mib), "small ones have memory of their own")
		}
		require.False(t, granted(t, g, "small", 4*mib))
	})
}

// What is larger than all memory is read alone, and is read.
func TestGateTakesWhatIsTooLarge(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		g := &gate{}
		g.resize(100 * mib)
		leave := must.Get(g.enter(t.Context(), "a", 5000*mib, time.Second))(t)
		require.False(t, granted(t, g, "b", 20*mib))
		leave()
		leave() // twice is once
		require.True(t, granted(t, g, "b", 75*mib))
		require.False(t, granted(t, g, "c", 20*mib))
	})
}

// Turns go round the senders: the one body of a modest sender comes after one
// of a greedy sender's, not after all of them.
func TestGateTurns(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		g := &gate{}
		g.resize(133 * mib)
		first := must.Get(g.enter(t.Context(), "greedy", 100*mib, time.Second))(t)
		order := make(chan string, 100)
		wait := func(share string) {
			go func() {
				leave, err := g.enter(t.Context(), share, 60*mib, time.Hour)
				if err != nil {
					order <- err.Error()
					return
				}
				order <- share
				<-time.After(time.Second) // the work on the body, in false time
				leave()
			}()
			synctest.Wait()
		}
		for range 20 {
			wait("greedy")
		}
		wait("modest")
		first()
		require.Equal(t, "greedy", <-order)
		require.Equal(t, "modest", <-order)
		for range 19 {
			require.Equal(t, "greedy", <-order)
		}
		<-time.After(time.Minute) // the last one has left
	})
}

// Whoever waits too long, or hangs up, gets nothing and leaves nothing behind.
func TestGateGivesUp(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		g := &gate{}
		g.resize(133 * mib)
		leave, err := g.enter(t.Context(), "a", 100*mib, time.Second)
		require.NoError(t, err)
		begin := time.Now()
		_, err = g.enter(t.Context(), "b", 50*mib, 10*time.Second)
		require.ErrorIs(t, err, ErrBusy)
		require.Equal(t, 10*time.Second, time.Since(begin))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = g.enter(ctx, "b", 50*mib, time.Hour)
		require.ErrorIs(t, err, context.Canceled)
		for n := range shareWaiting + 1 {
			go func() { _, _ = g.enter(t.Context(), "many", 50*mib, time.Minute) }()
			synctest.Wait()
			g.large.mu.Lock()
			count := g.large.count
			g.large.mu.Unlock()
			require.Equal(t, min(n+1, shareWaiting), count, "waiters are bounded")
		}
		<-time.After(2 * time.Minute) // until they have given up, in false time
		synctest.Wait()
		leave()
		state := func(look func(l *lane)) {
			g.large.mu.Lock()
			defer g.large.mu.Unlock()
			look(&g.large)
		}
		state(func(l *lane) {
			require.Zero(t, l.count)
			require.Zero(t, l.used)
			require.Empty(t, l.of)
			require.Empty(t, l.queues)
			require.Empty(t, l.turns)
			require.NotNil(t, l.timer, "memory goes back to the system soon")
		})
		<-time.After(time.Minute)
		synctest.Wait()
		state(func(l *lane) { require.Nil(t, l.timer); require.False(t, l.tidied.IsZero()) })
	})
}

// Memory goes back to the system when large bodies have stopped coming, not
// between two of them: everybody waits meanwhile.
func TestGateIsTidiedWhenIdle(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		g := &gate{}
		g.resize(133 * mib)
		tidied := func() bool {
			synctest.Wait()
			g.large.mu.Lock()
			defer g.large.mu.Unlock()
			return !g.large.tidied.IsZero()
		}
		for range 60 {
			leave := must.Get(g.enter(t.Context(), "a", 50*mib, time.Second))(t)
			leave()
			<-time.After(tidyAfter / 2)
			require.False(t, tidied())
		}
		<-time.After(tidyAfter)
		require.True(t, tidied())
	})
}

// What an HTTP/2 connection may send ahead is counted once, however many requests it has,
// and a caller with too many connections is refused.
func TestWhatIsSentAheadIsCounted(t *testing.T) {
	t.Parallel()
	b := budget.New()
	in := New(Options{Budget: b, Limits: Limits{Memory: 64 * windowCost}}) // two for one caller
	arrive := func(proto int, peer string, length int64) (done func(), err error) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/prompt", strings.NewReader("{"))
		r.ProtoMajor, r.RemoteAddr, r.ContentLength = proto, peer, length
		_, done, err = in.Guard(httptest.NewRecorder(), r, "ann")
		return done, err
	}
	var dones []func()
	for range 10 {
		done := must.Get(arrive(2, "10.0.0.1:1", -1))(t)
		dones = append(dones, done)
	}
	require.Equal(t, int64(windowCost+10*arrivalCost), b.Used(budget.Memory))
	done, err := arrive(2, "10.0.0.1:2", 1000)
	require.NoError(t, err)
	dones = append(dones, done)
	require.Equal(t, int64(windowCost+11*arrivalCost+1000), b.Used(budget.Memory), "no more than it will send")
	_, err = arrive(2, "10.0.0.1:3", -1)
	require.ErrorIs(t, err, ErrBusy)
	_, err = arrive(3, "10.0.0.1:3", 100<<20)
	require.ErrorIs(t, err, ErrBusy)
	done, err = arrive(1, "10.0.0.1:4", -1)
	require.NoError(t, err, "the system keeps it")
	dones = append(dones, done)
	for _, done := range dones {
		done()
	}
	require.Zero(t, b.Used(budget.Memory))
	require.Empty(t, in.ahead.of)
}
