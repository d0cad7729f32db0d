package panics_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func TestDo(t *testing.T) {
	own := errors.New("own")
	type row struct {
		f    func() error
		want error
	}
	beside.Cases(t, map[string]row{
		"nothing":  {func() error { return nil }, nil},
		"an error": {func() error { return own }, own},
		"a panic":  {func() error { panic("broken") }, panics.ErrPanic},
		"a nil pointer": {func() error {
			var p *strings.Builder
			return errors.New(p.String()[1:])
		}, panics.ErrPanic},
	}, func(t *testing.T, tt row) {
		var log strings.Builder
		err := panics.Do(slog.New(slog.NewTextHandler(&log, nil)), "testing", tt.f)
		if !errors.Is(tt.want, panics.ErrPanic) {
			require.Equal(t, tt.want, err)
			require.Empty(t, log.String())
			return
		}
		require.ErrorIs(t, err, panics.ErrPanic)
		require.Contains(t, log.String(), "work=testing")
		require.Contains(t, log.String(), "panics_test.TestDo.func", "the log has the stack")
	})
}

// Whoever waits for a group waits for those that panic, too.
func TestGroup(t *testing.T) {
	t.Parallel()
	var (
		log  strings.Builder
		g    panics.Group
		done = make(chan struct{})
	)
	g.Go(slog.New(slog.NewTextHandler(&log, nil)), "testing", func() { panic("broken") })
	g.Go(slog.New(slog.DiscardHandler), "testing", func() { close(done) })
	g.Wait()
	<-done
	require.Contains(t, log.String(), "broken")
}
