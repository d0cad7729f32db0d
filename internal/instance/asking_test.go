package instance

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	var s Refusals
	for n := range 3 * maxRefused {
		s.Note(fmt.Sprint(n), time.Hour, false)
		require.True(t, s.Has(fmt.Sprint(n)))
		require.LessOrEqual(t, len(s.jobs), maxRefused)
	}
}

// A refusal ends by itself, after longer each time.
func TestRefusalsEnd(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var s Refusals
		for n, seconds := range []int{5, 10, 20, 40, 80, 160, 300, 300} {
			rest := time.Duration(seconds) * time.Second
			got, before := s.Note("a", 5*time.Second, n == 1)
			require.Equal(t, rest, got)
			require.Equal(t, n, before)
			time.Sleep(rest - time.Millisecond)
			require.True(t, s.Has("a"))
			time.Sleep(time.Millisecond)
			require.False(t, s.Has("a"))
			require.Equal(t, n >= 1, s.Itself("a"), "it would say the same again")
		}
		s.forget()
		require.False(t, s.Itself("a"))
		got, before := s.Note("a", 5*time.Second, false)
		require.Equal(t, 5*time.Second, got)
		require.Zero(t, before)
	})
}

// Prompts that would otherwise be refused may ask in a burst and then at a slow
// rate. Each class has a bound, and so do all classes together.
func TestBudgetOfQuestions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBudget()
		now := time.Now()
		ask := func(class string, times int, curious bool) (taken int) {
			for range times {
				if b.take(class, now, curious) {
					taken++
				}
			}
			return taken
		}
		require.Equal(t, classBurst, ask("A", 100, false))
		now = now.Add(classEvery)
		require.Equal(t, 1, ask("A", 100, false))
		all := 0
		for n := range 100 {
			all += ask(fmt.Sprint("class ", n), 1, false)
		}
		require.LessOrEqual(t, all, classesBurst)
		require.Positive(t, all)
		for n := range 3 * maxBudgets {
			ask(fmt.Sprint("many ", n), 1, false)
		}
		require.LessOrEqual(t, len(b.classes), maxBudgets)
	})
}

// Prompts that are accepted anyway ask less and less often while the answers teach
// nothing new, and at once when a list has changed.
func TestCuriousAskSeldom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBudget()
		now := time.Now()
		asked := 0
		for range 600 { // ten minutes
			if b.take("A", now, true) {
				asked++
			}
			now = now.Add(time.Second)
		}
		require.Greater(t, asked, 5)
		require.Less(t, asked, 20)
		require.False(t, b.take("A", now.Add(-time.Second), true))
		b.taught("A")
		require.True(t, b.take("A", now, true))
	})
}

func TestOneAtATimeForEachOwner(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var l lanes
		leave := sure(l.enter(t.Context(), "slow"))
		inside := make(chan func(), 2)
		for range 2 {
			go func() {
				leave, err := l.enter(t.Context(), "slow")
				if err == nil {
					inside <- leave
				}
			}()
		}
		synctest.Wait()
		require.Empty(t, inside, "one after the other")
		other, err := l.enter(t.Context(), "other")
		require.NoError(t, err, "nobody else waits")
		other()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = l.enter(gone, "slow")
		require.ErrorIs(t, err, context.Canceled)

		leave()
		synctest.Wait()
		require.Len(t, inside, 1)
		(<-inside)()
		(<-inside)()
		require.Empty(t, l.open, "what nobody uses is forgotten")
	})
}
