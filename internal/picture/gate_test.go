package picture

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// queue puts tickets of a caller into a lane; each sends its name when its turn
// begins and ends it when told.
type queue struct {
	t     *testing.T
	l     *lane
	began chan string
	end   map[string]chan struct{}
	all   sync.WaitGroup
}

func newQueue(t *testing.T, l *lane) *queue {
	return &queue{t: t, l: l, began: make(chan string, 10_000), end: map[string]chan struct{}{}}
}

func (q *queue) add(ctx context.Context, caller, name string, cost int64) {
	end := make(chan struct{})
	q.end[name] = end
	q.all.Go(func() {
		if q.l.acquire(ctx, caller, cost) != nil {
			return
		}
		q.began <- name
		<-end
		q.l.release(caller, cost)
	})
	synctest.Wait()
}

// order ends each turn as soon as it began, and gives the order of all.
func (q *queue) order() (names []string) {
	for {
		synctest.Wait()
		select {
		case name := <-q.began:
			names = append(names, name)
			close(q.end[name])
		default:
			q.all.Wait()
			require.Zero(q.t, q.l.used)
			require.Zero(q.t, q.l.running)
			require.Zero(q.t, q.l.waiting)
			require.Empty(q.t, q.l.lines, "nothing is kept of callers that are gone")
			require.Empty(q.t, q.l.turns)
			return names
		}
	}
}

func TestCallersTakeTurns(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		q := newQueue(t, &lane{memory: 100, slots: 1})
		for n := range 5 {
			q.add(t.Context(), "a", fmt.Sprint("a", n), 60)
		}
		q.add(t.Context(), "b", "b0", 1)
		q.add(t.Context(), "b", "b1", 100)
		q.add(t.Context(), "c", "c0", 1)
		require.Equal(t, []string{"a0", "a1", "b0", "c0", "a2", "b1", "a3", "a4"}, q.order())
	})
}

func TestLaneKeepsToItsMemoryAndSlots(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		l := &lane{memory: 100, slots: 4}
		q := newQueue(t, l)
		q.add(t.Context(), "a", "a0", 50)
		q.add(t.Context(), "a", "a1", 30)
		q.add(t.Context(), "a", "a2", 1) // has half of the slots
		require.Equal(t, 2, l.running)
		q.add(t.Context(), "b", "b0", 30)
		require.Equal(t, 2, l.running, "there is no memory left")
		q.add(t.Context(), "c", "c0", 1)
		require.Equal(t, 2, l.running, "nobody overtakes the next in turn, or a large one would wait for ever")
		close(q.end[<-q.began])
		synctest.Wait()
		require.Equal(t, 4, l.running)
		require.LessOrEqual(t, l.used, int64(100))
		q.end["a0"] = make(chan struct{}) // already ended
		require.Len(t, q.order(), 4)
	})
}

// A caller that hangs up leaves the queue, and those behind it move up.
func TestWhoHangsUpLeaves(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		l := &lane{memory: 100, slots: 2}
		q := newQueue(t, l)
		gone, hangUp := context.WithCancel(t.Context())
		q.add(t.Context(), "a", "a0", 50)
		q.add(gone, "b", "b0", 90)
		q.add(t.Context(), "c", "c0", 50)
		require.Equal(t, 1, l.running)
		hangUp()
		synctest.Wait()
		require.Equal(t, 2, l.running)
		require.ErrorIs(t, l.acquire(gone, "b", 1), context.Canceled)
		require.ElementsMatch(t, []string{"a0", "c0"}, q.order())
	})
}

func TestWaitersAreBounded(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		l := &lane{memory: 100, slots: 1}
		q := newQueue(t, l)
		for n := range maxOfOne + 1 {
			q.add(t.Context(), "a", fmt.Sprint("a", n), 1)
		}
		require.ErrorIs(t, l.acquire(t.Context(), "a", 1), ErrBusy)
		q.add(t.Context(), "b", "b", 1)
		require.Len(t, q.order(), maxOfOne+2)
		l.waiting = maxWaiting
		require.ErrorIs(t, l.acquire(t.Context(), "c", 1), ErrBusy)
		require.Empty(t, l.lines)
	})
}

// Small pictures never wait for large ones, however many there are.
func TestSmallOnesHaveTheirOwnLane(t *testing.T) {
	t.Parallel()
	g := NewGate(nil)
	large, err := g.Acquire(t.Context(), "a", 600<<20)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 50 {
		waiting.Go(func() {
			_, err := g.Acquire(ctx, "a", 600<<20)
			require.ErrorIs(t, err, context.Canceled)
		})
	}
	for _, caller := range []string{"a", "b"} {
		small, err := g.Acquire(t.Context(), caller, 1<<20)
		require.NoError(t, err)
		small()
	}
	cancel()
	waiting.Wait()
	large()
	for _, cost := range []int64{DefaultMemory, DefaultMemory - DefaultMemory/smallShare + 1, 1 << 60} {
		_, err = g.Acquire(t.Context(), "a", cost)
		require.ErrorIs(t, err, ErrTooLarge)
	}
	tiny := NewGate(func() int64 { return 8 << 20 })
	release, err := tiny.Acquire(t.Context(), "a", 4<<20)
	require.NoError(t, err)
	release()
}

// Under any load nothing is lost, and no bound is broken.
func TestGateUnderLoad(t *testing.T) {
	t.Parallel()
	l := &lane{memory: 100, slots: 3}
	var all sync.WaitGroup
	for n := range 300 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if n%3 == 0 {
				go cancel()
			}
			caller, cost := fmt.Sprint(n%7), int64(n%100+1)
			if err := l.acquire(ctx, caller, cost); err != nil {
				require.ErrorIs(t, err, context.Canceled)
				return
			}
			l.mu.Lock()
			require.LessOrEqual(t, l.used, l.memory)
			require.LessOrEqual(t, l.running, l.slots)
			l.mu.Unlock()
			l.release(caller, cost)
		})
	}
	all.Wait()
	require.Zero(t, l.used)
	require.Zero(t, l.waiting)
	require.Empty(t, l.lines)
	require.Empty(t, l.turns)
}
