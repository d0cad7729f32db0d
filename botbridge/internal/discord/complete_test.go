package discord

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
)

func numbered(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("choice %d", i))
	}
	return list
}

func TestSuggestions(t *testing.T) {
	t.Parallel()
	asked := make(chan [3]string, 100)
	r := newRig(t, fakediscord.Options{}, func(o *Options) {
		o.Commands = commands()
		o.Commands[0].Arguments[0].Choices = numbered(maxChoices + 1)
		o.Commands[0].Arguments[2].Suggested = true
		o.Guilds = []string{guild}
		o.Suggest = func(_ context.Context, command, argument, typed string) []string {
			asked <- [3]string{command, argument, typed}
			switch typed {
			case "long":
				return []string{strings.Repeat("x", maxAbout+1), "", "short"}
			case "none":
				return nil
			}
			return numbered(maxChoices + 1)
		}
	})
	require.Eventually(t, func() bool { _, n := r.fake.Commands(); return n == 1 }, patience, patience/10000)
	p := r.fake.Person(ada, channel, guild, "en-US")
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	for _, one := range []struct {
		argument, typed string
		want            []string
	}{
		{"size", "", numbered(maxChoices)},
		{"negative", "cho", numbered(maxChoices)},
		{"negative", "long", []string{"short"}},
		{"negative", "none", []string{}},
	} {
		got, err := p.Type(ctx, "generate", one.argument, one.typed)
		require.NoError(t, err)
		require.Equal(t, one.want, got)
		require.Equal(t, [3]string{"generate", one.argument, one.typed}, <-asked)
	}
	_, err := p.Type(ctx, "generate", "prompt", "x")
	require.Error(t, err, "Discord does not ask about any other argument")

	// Strangers learn nothing, and what is typed is no event.
	elsewhere, cancel := context.WithCancel(ctx)
	stranger := r.fake.Person(bob, channel, "900000000000000009", "en-US")
	done := make(chan error, 1)
	go func() { _, err := stranger.Type(elsewhere, "generate", "size", ""); done <- err }()
	p.Use("help")
	require.Equal(t, "/help", r.event(0).Message.Text)
	cancel()
	require.Error(t, <-done)
	require.Empty(t, asked)
}

// Whoever keeps a key pressed does not fill the bridge's memory.
func TestTooManySuggestions(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	begun := make(chan struct{}, 10*maxSuggesting)
	r := newRig(t, fakediscord.Options{}, func(o *Options) {
		o.Commands = commands()
		o.Commands[0].Arguments[2].Suggested = true
		o.Suggest = func(context.Context, string, string, string) []string {
			begun <- struct{}{}
			<-held
			return nil
		}
	})
	require.Eventually(t, func() bool { _, n := r.fake.Commands(); return n == 1 }, patience, patience/10000)
	p := r.fake.Person(ada, channel, guild, "en-US")
	ctx, cancel := context.WithCancel(r.ctx)
	cancel() // nobody waits for the answers
	for range 3 * maxSuggesting {
		_, err := p.Type(ctx, "generate", "negative", "x")
		require.ErrorIs(t, err, context.Canceled)
	}
	p.Use("help")
	require.Equal(t, "/help", r.event(0).Message.Text, "all that came before is handled")
	close(held)
	require.LessOrEqual(t, len(begun), maxSuggesting)
}
