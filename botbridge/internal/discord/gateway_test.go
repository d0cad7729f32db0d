package discord

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
)

// Whatever happens to the connection, each event comes once, and the session goes on
// where it can.
func TestConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks  func(*rig)
		resumes bool
	}{
		"silence":   {func(r *rig) { r.fake.Silence() }, true},
		"cut":       {func(r *rig) { r.fake.Hangup(1006) }, true},
		"restart":   {func(r *rig) { r.fake.Hangup(4000) }, true},
		"reconnect": {func(r *rig) { r.fake.Reconnect() }, true},
		"invalid":   {func(r *rig) { r.fake.Invalidate() }, false},
		"timed out": {func(r *rig) { r.fake.Hangup(4009) }, false},
		"process":   {func(r *rig) { r.stop(); r.start() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := fakediscord.Options{AckWithin: patience}
			if name == "silence" {
				o.Heartbeat = 2 * time.Second // longer than a busy machine stands still
			}
			r := newRig(t, o)
			p := r.fake.Person(ada, channel, guild, "en-US")
			first := p.Use("generate", fakediscord.Option{Name: "prompt", Value: "1"})
			require.Equal(t, first, r.event(0).ID)
			c.breaks(r)
			if c.resumes {
				second := p.Use("generate", fakediscord.Option{Name: "prompt", Value: "2"})
				require.Equal(t, second, r.event(1).ID)
				identified, resumed := r.fake.Sessions()
				require.Equal(t, 1, identified)
				require.GreaterOrEqual(t, resumed, 1)
				return
			}
			require.Eventually(t, func() bool { identified, _ := r.fake.Sessions(); return identified == 2 }, patience, 5*time.Millisecond)
			r.connected()
			second := p.Use("generate", fakediscord.Option{Name: "prompt", Value: "2"})
			require.Equal(t, second, r.event(1).ID)
		})
	}
}

// What was received and could not be stored is not lost with the process.
func TestNotStored(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakediscord.Options{AckWithin: patience})
	r.mu.Lock()
	r.refuse = errors.New("the state is away")
	r.mu.Unlock()
	p := r.fake.Person(ada, channel, guild, "en-US")
	id := p.Use("generate", fakediscord.Option{Name: "prompt", Value: "1"})
	r.sees(p, "it is deferred all the same", func(m fakediscord.Message) bool { return m.Thinking })
	r.stop()
	r.mu.Lock()
	r.refuse = nil
	r.mu.Unlock()
	r.start()
	e := r.event(0)
	require.Equal(t, id, e.ID)
	require.Equal(t, byte('c'), e.Message.ID[0], "its answer is found again")
	require.Len(t, p.Sees(), 1)
}

// The bridge's memory may be away: commands are confirmed and stored as soon as it is
// back.
func TestMemoryAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakediscord.Options{AckWithin: patience})
	r.memory.mu.Lock()
	r.memory.away = true
	r.memory.mu.Unlock()
	p := r.fake.Person(ada, channel, guild, "en-US")
	p.Use("generate", fakediscord.Option{Name: "prompt", Value: "1"})
	require.Equal(t, byte('c'), r.event(0).Message.ID[0])
}

func TestHealth(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakediscord.Options{})
	require.Eventually(t, func() bool { return r.d.Health(time.Now()) == nil }, patience, 5*time.Millisecond)
	require.Error(t, r.d.Health(time.Now().Add(silence+time.Minute)))
	name, err := r.d.Me(r.ctx)
	require.NoError(t, err)
	require.Equal(t, fakediscord.BotName, name)
	r.stop()
	require.NoError(t, r.d.Health(time.Now().Add(time.Hour)), "it is not for this process to listen")

	wrong := r.o
	wrong.Token = "wrong"
	d, err := New(wrong)
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Me(r.ctx)
	require.ErrorIs(t, err, ErrToken)
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Listen(ctx, r.admit) }()
	require.Eventually(t, func() bool { return errors.Is(d.Health(time.Now()), ErrToken) }, patience, 5*time.Millisecond)
	cancel()
	<-done
}

// Commands are registered once, and again only if they differ.
func TestRegister(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakediscord.Options{})
	registered := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { _, replaced := r.fake.Commands(); return replaced == n }, patience, 5*time.Millisecond)
	}
	registered(1)
	list, _ := r.fake.Commands()
	require.Len(t, list, 2)
	require.Equal(t, "картинка по описанию", list[0]["description_localizations"].(map[string]any)["ru"])
	first := list[0]["options"].([]any)[0].(map[string]any)
	require.Equal(t, "prompt", first["name"], "what is required comes first")
	changed, err := r.d.registerOnce(r.ctx)
	require.NoError(t, err)
	require.False(t, changed)
	for _, change := range []func(c []Command){
		func(c []Command) { c[0].About[""] = "other" },
		func(c []Command) { c[0].Arguments[3].Max = 5 },
		func(c []Command) { c[0].Arguments[0].Choices = c[0].Arguments[0].Choices[:1] },
		func(c []Command) { c[0].Arguments = c[0].Arguments[:6] },
		func(c []Command) { delete(c[1].About, "ru") },
		func(c []Command) { c[1].Name = "aid" },
		func(c []Command) { c[0].Arguments[2].Suggested = true },
		func(c []Command) { c[0].Arguments[0].Choices = numbered(maxChoices + 1) },
	} {
		r.d.o.Commands = commands()
		change(r.d.o.Commands)
		changed, err = r.d.registerOnce(r.ctx)
		require.NoError(t, err)
		require.True(t, changed)
		changed, err = r.d.registerOnce(r.ctx)
		require.NoError(t, err)
		require.False(t, changed)
	}
}
