package scale

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// vault makes tokens, and seals them by a number.
type vault struct {
	sealed [][]Join
	ended  []string
}

// Make implements Tokens.
func (v *vault) Make(_ context.Context, names []string, _ time.Duration) (string, error) {
	var list []Join
	for _, name := range names {
		list = append(list, Join{name, name + ":once-secret"})
	}
	v.sealed = append(v.sealed, list)
	return strings.Repeat("x", len(v.sealed)), nil
}

// Open implements Tokens.
func (v *vault) Open(_ context.Context, sealed string) ([]Join, error) {
	return v.sealed[len(sealed)-1], nil
}

// End implements Tokens.
func (v *vault) End(_ context.Context, name string) error {
	v.ended = append(v.ended, name)
	return nil
}

// Tidy implements Tokens.
func (v *vault) Tidy(context.Context) error { return nil }

// Each machine that is started gets a token and a name of its class; a change that is told again has
// the same ones, Redis has none that anybody can read, and one that goes has none any more.
func TestTokensOfMachines(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		db := redistest.Embedded(t)
		c, v := newCloud(t), &vault{}
		class := classOf(c)
		class.Joins = time.Hour
		ctx, die := context.WithCancel(t.Context())
		first := true
		c.call = func(_ context.Context, taken bool) error {
			if taken && first { // the hub dies, and the provider has done it
				first = false
				text, err := store{db, "one"}.read(t.Context())
				require.NoError(t, err)
				require.NotEmpty(t, text["gpu"])
				require.NotContains(t, text["gpu"], "secret")
				die()
				return errors.New("gone")
			}
			return nil
		}
		run := func(ctx context.Context, hub string) {
			s := New(Options{DB: db, Hub: hub, Fleet: c, Classes: func() []Class { return []Class{class} }, Tokens: v, Log: func() *slog.Logger { return slog.New(slog.DiscardHandler) }})
			go s.Run(ctx)
		}
		run(ctx, "one")
		go c.run(t.Context())
		c.post(1, 30*time.Second)
		<-time.After(time.Minute)
		run(t.Context(), "two")
		eventually(t, 20*time.Minute, "all is done", func() bool { return c.left() == 0 })
		eventually(t, 20*time.Minute, "all are gone", func() bool { return c.count() == 0 && len(v.ended) > 0 })
		require.GreaterOrEqual(t, len(c.calls), 3)
		again := c.calls[1]
		require.Equal(t, c.calls[0], again)
		require.Len(t, again.Join, again.Start)
		require.Regexp(t, `^gpu-[a-z2-7]{10}$`, again.Join[0].Name)
		require.Equal(t, again.Join[0].Name+":once-secret", again.Join[0].Token)
		text, err := json.Marshal(again)
		require.NoError(t, err)
		require.Contains(t, string(text), `"join":[{"name":"gpu-`)
		last := c.calls[len(c.calls)-1]
		require.Empty(t, last.Join)
		require.True(t, slices.Equal(last.Remove, v.ended))
	})
}
