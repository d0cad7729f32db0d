package userdata

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// slow is a storage whose writes for the tenant "slow" take until they are let go.
type slow struct {
	*memory
	goOn chan struct{}
}

func (s slow) Write(ctx context.Context, key string, r io.Reader) (int64, error) {
	if strings.HasPrefix(key, tenantPrefix("slow")) {
		<-s.goOn
	}
	return s.memory.Write(ctx, key, r)
}

// A storage that takes long over a change of one tenant holds up its other changes as long as
// somebody waits for them, and no other tenant.
func TestSlowChange(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		m := slow{newMemory(), make(chan struct{})}
		s := New(m, nil)
		f := s.Folder("slow", DefaultUser)
		written := make(chan error, 1)
		go func() {
			_, err := f.Write(t.Context(), "a", strings.NewReader("a"), true)
			written <- err
		}()
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		for _, change := range []func() error{
			func() error { _, err := f.Write(ctx, "b", strings.NewReader("b"), true); return err },
			func() error { _, err := f.Move(ctx, "a", "b", true); return err },
			func() error { return f.Delete(ctx, "a") },
			func() error { return f.ChangeSettings(ctx, func(*pyjson.Object) {}) },
			func() error { _, err := s.AddUser(ctx, "slow", "ada"); return err },
		} {
			go func() { written <- change() }()
		}
		synctest.Wait()
		require.Empty(t, written)
		leave()
		for range 5 {
			require.ErrorIs(t, <-written, context.Canceled)
		}
		for n := range 200 {
			s.Folder(strings.Repeat("x", n), DefaultUser).put(t, "a", "a")
		}
		close(m.goOn)
		require.NoError(t, <-written)
		require.Equal(t, "a", f.text(t, "a"))
		require.Empty(t, s.turns.of)
	})
}
