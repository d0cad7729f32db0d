package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Prompts that would otherwise be refused may ask in a burst and then at a slow
// rate. Each class has a bound, and so do all classes together.
func TestBudgetOfQuestions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
	inBubble(t, func(t *testing.T) {
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
