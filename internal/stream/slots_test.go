package stream

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/job"
)

func TestSlots(t *testing.T) {
	t.Parallel()
	fill := func(p *slots, of party, most, own int) (taken int, err error) {
		for {
			if err := p.take(of, most, own); err != nil {
				return taken, err
			}
			taken++
		}
	}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		var p slots
		n, err := fill(&p, party{tenant: "a"}, 80, 80)
		require.Equal(t, 80, n, "who is alone may have all")
		require.ErrorIs(t, err, ErrFull)
	})
	t.Run("tenant", func(t *testing.T) {
		t.Parallel()
		var p slots
		n, err := fill(&p, party{tenant: "a"}, 80, 20)
		require.Equal(t, 20, n)
		require.ErrorIs(t, err, ErrTenantFull)
		require.NoError(t, p.take(party{tenant: "b"}, 80, 20), "others are not affected")
		p.free(party{tenant: "a"})
		require.NoError(t, p.take(party{tenant: "a"}, 80, 20))
	})
	t.Run("share", func(t *testing.T) {
		t.Parallel()
		var p slots
		quiet, crowd := party{tenant: "", network: "1"}, party{tenant: "", network: "2"}
		require.NoError(t, p.take(quiet, 80, 80))
		n, err := fill(&p, crowd, 80, 80)
		require.Equal(t, 69, n, "a crowd gets no place of the last eighth")
		require.ErrorIs(t, err, ErrFull)
		n, _ = fill(&p, quiet, 80, 80)
		require.Equal(t, 10, n, "which others have")
		require.Equal(t, 80, p.all)
	})
	t.Run("given back", func(t *testing.T) {
		t.Parallel()
		var p slots
		of := party{tenant: "a", network: "b"}
		n, _ := fill(&p, of, 9, 9)
		for range n {
			p.free(of)
		}
		require.Zero(t, p.all)
		require.Empty(t, p.tenants)
		require.Empty(t, p.parties)
	})
}

// A held connection counts as a socket, and ends when the streams are closed.
func TestHold(t *testing.T) {
	t.Parallel()
	s := New(Options{MaxSockets: 3, TenantSockets: func(string) int { return 1 }})
	ann := Ident{Requester: job.Requester{Tenant: "ann"}, Network: "a"}
	held, release, err := s.Sockets.Hold(t.Context(), ann)
	require.NoError(t, err)
	_, _, err = s.Sockets.Hold(t.Context(), ann)
	require.ErrorIs(t, err, ErrTenantFull)
	release()
	require.Error(t, held.Err())
	held, release, err = s.Sockets.Hold(t.Context(), ann)
	require.NoError(t, err, "its slot is free again")
	require.NoError(t, held.Err())
	context.AfterFunc(held, release)
	require.NoError(t, s.Close(t.Context()), "waits for what is held, and ends it")
	_, _, err = s.Sockets.Hold(t.Context(), ann)
	require.ErrorIs(t, err, ErrClosed)
}

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
	go func() { n, _ := count.read(t.Context()); first <- n }()
	<-asks
	gone, leave := context.WithCancel(t.Context())
	go func() { _, err := count.read(gone); second <- err }()
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
