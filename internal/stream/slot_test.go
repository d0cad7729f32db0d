package stream

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// What is held counts as a socket, and ends when the streams are closed.
func TestHold(t *testing.T) {
	t.Parallel()
	s := New(Options{MaxSockets: 3, TenantSockets: func(string) int { return 1 }})
	ann := Ident{Requester: job.Requester{Tenant: "ann"}, Network: "a"}
	held, release, err := s.Hold(t.Context(), ann)
	require.NoError(t, err)
	_, _, err = s.Hold(t.Context(), ann)
	require.ErrorIs(t, err, ErrTenantFull)
	release()
	require.Error(t, held.Err())
	held, release, err = s.Hold(t.Context(), ann)
	require.NoError(t, err, "its slot is free again")
	require.NoError(t, held.Err())
	context.AfterFunc(held, release)
	require.NoError(t, s.Close(t.Context()), "waits for what is held, and ends it")
	_, _, err = s.Hold(t.Context(), ann)
	require.ErrorIs(t, err, ErrClosed)
}
