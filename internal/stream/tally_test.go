package stream

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
)

// A socket that waits while another one of its caller asks for their number can leave.
func TestWaitForTheNumber(t *testing.T) {
	t.Parallel()
	asks, answer := make(chan struct{}), make(chan struct{})
	count := &tally{turn: semaphore.NewWeighted(1), ask: func(context.Context, string) (int, error) {
		close(asks)
		<-answer
		return 3, nil
	}}
	first, second := make(chan int), make(chan error)
	go func() {
		n, _ := count.read(t.Context())
		first <- n
	}()
	<-asks
	gone, leave := context.WithCancel(t.Context())
	go func() {
		_, err := count.read(gone)
		second <- err
	}()
	leave()
	select {
	case err := <-second:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(time.Minute):
		require.Fail(t, "it waits for the other one's answer")
	}
	close(answer)
	require.Equal(t, 3, <-first)
	n, err := count.read(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, n, "known by now")
}
