package budget_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func newBudget(limit, parts int64) *budget.Budget {
	b := budget.New()
	b.Resize(budget.Memory, limit, parts, nil)
	b.Resize(budget.Disk, limit, parts, nil)
	return b
}

// No share takes what is left for others, and everything comes back.
func TestShares(t *testing.T) {
	t.Parallel()
	b := newBudget(120, 2)
	ann, ben := b.Open("ann", nil), b.Open("ben", nil)
	require.True(t, ann.Take(budget.Memory, 60))
	require.False(t, ann.Take(budget.Memory, 1), "her part is used up")
	require.False(t, b.Open("ann", nil).Take(budget.Memory, 1), "by whatever holder")
	require.True(t, ann.Take(budget.Disk, 60), "the kinds are counted separately")
	require.True(t, ben.Take(budget.Memory, 40))
	eve := b.Open("eve", nil)
	defer eve.Close()
	require.True(t, eve.Take(budget.Memory, 20))
	require.False(t, eve.Take(budget.Memory, 1), "all is used up")
	ann.Give(budget.Memory, 10)
	require.True(t, eve.Take(budget.Memory, 10))
	eve.Give(budget.Memory, 1000)
	ann.Close()
	ann.Close()
	ben.Close()
	require.Zero(t, b.Used(budget.Memory))
	require.Zero(t, b.Used(budget.Disk))
	require.False(t, ann.Take(budget.Memory, 1), "a closed holder keeps nothing")
}

// Whoever can do with less leaves most of a part to those who cannot.
func TestSpare(t *testing.T) {
	t.Parallel()
	b := newBudget(160, 2)
	ann, ben := b.Open("ann", nil), b.Open("ben", nil)
	require.True(t, ann.TakeSpare(budget.Memory, 20))
	require.False(t, ann.TakeSpare(budget.Memory, 1))
	require.True(t, ann.Take(budget.Memory, 60))
	require.True(t, ben.TakeSpare(budget.Memory, 20), "each has a part")
	ann.Give(budget.Memory, 61)
	require.True(t, ann.TakeSpare(budget.Memory, 1))
	ann.Close()
	require.False(t, ann.TakeSpare(budget.Memory, 1), "a closed holder keeps nothing")
	require.True(t, (*budget.Holder)(nil).TakeSpare(budget.Memory, 1))
}

// Space that others use as well is looked at each time.
func TestRoom(t *testing.T) {
	t.Parallel()
	b, free := budget.New(), int64(50)
	b.Resize(budget.Disk, 100, 1, func() int64 { return free })
	h := b.Open("ann", nil)
	require.True(t, h.Take(budget.Disk, 30))
	free = 1
	require.False(t, h.Take(budget.Disk, 2))
	require.True(t, h.Take(budget.Disk, 1))
}

// Whoever has been silent longest makes room for others, and nobody who sends does.
func TestSilentAreCutFirst(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		b := newBudget(100, 1)
		cut := ""
		open := func(share string) *budget.Holder {
			h := b.Open(share, func() { cut += share })
			require.True(t, h.Take(budget.Memory, 25))
			return h
		}
		first, second, busy, slow := open("first"), open("second"), open("busy"), open("slow")
		first.Wait()
		<-time.After(time.Second)
		second.Wait()
		busy.Wait()
		<-time.After(budget.Silence - 2*time.Second)
		asks := b.Open("asks", nil)
		require.False(t, asks.Take(budget.Memory, 1))
		require.Empty(t, cut, "nobody has been silent long enough")
		<-time.After(2 * time.Second)
		busy.Go()
		slow.Wait()
		require.False(t, asks.Take(budget.Memory, 1))
		require.Equal(t, "first", cut)
		require.True(t, first.Dropped())
		require.False(t, first.Take(budget.Disk, 1), "it keeps nothing more")

		// What the next one gives back is waited for.
		go func() { <-time.After(time.Second); first.Close() }()
		require.True(t, asks.Await(t.Context(), budget.Memory, 20))
		require.Equal(t, "firstsecond"[:len(cut)], cut)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, asks.Await(ctx, budget.Memory, 1000), "not for ever")
	})
}

// A share that has used up its part makes room among its own.
func TestSilentOfOneShare(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		b := newBudget(100, 2)
		cut := ""
		ben := b.Open("ben", func() { cut += "ben" })
		require.True(t, ben.Take(budget.Disk, 10))
		ben.Wait()
		<-time.After(time.Second)
		ann := b.Open("ann", func() { cut += "ann" })
		require.True(t, ann.Take(budget.Disk, 50))
		ann.Wait()
		<-time.After(budget.Silence)
		require.False(t, b.Open("ann", nil).Take(budget.Disk, 1))
		require.Equal(t, "ann", cut)
	})
}
