package discord

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// asksWords has a form for the button "rx:…".
func asksWords(fields ...platform.Field) func(*Options) {
	return func(o *Options) {
		o.Form = func(_ context.Context, e platform.Event) *platform.Form {
			if !strings.HasPrefix(e.Data, "rx:") {
				return nil
			}
			return &platform.Form{Title: "New words " + strings.Repeat("x", 50), Data: e.Data, Fields: fields}
		}
	}
}

func words(value string) platform.Field {
	return platform.Field{Name: "prompt", Label: "What you want to see", Value: value, Long: true, Required: true}
}

// posted is a message with the buttons "Words" and "Again".
func (r *rig) posted() string {
	r.t.Helper()
	ids := must.Get(r.d.Send(r.ctx, platform.Chat{ID: channel, Group: true}, platform.Post{Text: "a fox", Buttons: [][]platform.Button{{
		{Label: "Words", Data: "rx:1"}, {Label: "Again", Data: "ag:1"},
	}}}))(r.t)
	return ids[0]
}

// form waits for the form that a press opens.
func (r *rig) form(p *fakediscord.Person, press string) fakediscord.Form {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	return must.Get(p.Form(ctx, press))(r.t)
}

// A press opens a form, and what was filled in comes back as that press.
func TestForm(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{}, asksWords(words("a fox"), platform.Field{Name: "negative", Label: strings.Repeat("y", 60), Value: "rain"}))
	p := r.fake.Person(ada, channel, guild, "ru")
	at := r.posted()
	press := must.Get(p.Press(at, "Words"))(t)
	form := r.form(p, press)
	require.Len(t, []rune(form.Title), maxTitle)
	require.Equal(t, "a fox", form.Fields[0].Value)
	require.True(t, form.Fields[0].Long && form.Fields[0].Required && !form.Fields[1].Required)
	filled := must.Get(p.Submit(form, map[string]string{"prompt": "a bear", "negative": ""}))(t)
	e := r.event(0)
	require.Equal(t, filled, e.ID, "the press itself is no event")
	require.Equal(t, []any{platform.Pressed, "rx:1", at, ada, "ru"}, []any{e.Kind, e.Data, e.Message.ID, e.User.ID, e.User.Language})
	require.Equal(t, map[string]string{"prompt": "a bear", "negative": ""}, e.Filled)
	require.NoError(t, r.d.Answer(r.ctx, e.Press, "on it"))
	require.Equal(t, ada, r.sees(p, "the answer", saying("on it")).Only)
	must.Get(p.Press(at, "Again"))(t)
	require.Equal(t, "ag:1", r.event(1).Data, "other presses open none")
	require.Nil(t, r.event(1).Filled)
}

// What Discord would not take is left out of a form: half of a text, and a sixth field.
func TestFormBounds(t *testing.T) {
	t.Parallel()
	fields := []platform.Field{words(strings.Repeat("🦊", maxFilled/2) + "x")}
	for i := range 6 {
		fields = append(fields, platform.Field{Name: fmt.Sprint(i), Label: "more", Value: strings.Repeat("🦊", maxFilled/2)})
	}
	r := newRig(t, fakediscord.Options{}, asksWords(fields...))
	p := r.fake.Person(ada, channel, guild, "en-US")
	press := must.Get(p.Press(r.posted(), "Words"))(t)
	form := r.form(p, press)
	require.Len(t, form.Fields, maxFields)
	require.Empty(t, form.Fields[0].Value)
	require.NotEmpty(t, form.Fields[1].Value)
}

// A form that cannot be shown is asked for in words; one whose answer is lost is shown.
func TestFormLost(t *testing.T) {
	type row struct {
		fault fakediscord.Fault
		times int64
		event string
	}
	beside.Cases(t, map[string]row{
		"twice refused":  {fakediscord.Broken, 2, "rx:1"},
		"once refused":   {fakediscord.Broken, 1, "ag:1"},
		"an answer lost": {fakediscord.CutAfter, 1, "ag:1"},
	}, func(t *testing.T, c row) {
		var calls atomic.Int64
		r := newRig(t, fakediscord.Options{AckWithin: patience, Fault: func(call string) fakediscord.Fault {
			if call == callbackCall && calls.Add(1) <= c.times {
				return c.fault
			}
			return fakediscord.None
		}}, asksWords(words("a fox")))
		p := r.fake.Person(ada, channel, guild, "en-US")
		at := r.posted()
		press := must.Get(p.Press(at, "Words"))(t)
		if c.event == "ag:1" {
			r.form(p, press)
		} else {
			r.event(0)
		}
		must.Get(p.Press(at, "Again"))(t)
		require.Equal(t, c.event, r.event(0).Data)
	})
}

// What is in a form already is not waited for: Discord wants an answer in time.
func TestFormInTime(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{}, func(o *Options) {
		o.Form = func(ctx context.Context, e platform.Event) *platform.Form {
			<-ctx.Done() // the store is away
			return &platform.Form{Title: "New words", Data: e.Data, Fields: []platform.Field{words("")}}
		}
	})
	p := r.fake.Person(ada, channel, guild, "en-US")
	require.Empty(t, r.form(p, must.Get(p.Press(r.posted(), "Words"))(t)).Fields[0].Value)
}

// What is filled in while nobody is there is handled later, though Discord says meanwhile
// that it has failed; so is what a process could not store before its end.
func TestFormWhileAway(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{AckWithin: patience}, asksWords(words("a fox")))
	p := r.fake.Person(ada, channel, guild, "en-US")
	at := r.posted()
	press := must.Get(p.Press(at, "Words"))(t)
	form := r.form(p, press)
	r.stop()
	must.Get(p.Submit(form, map[string]string{"prompt": "a bear"}))(t)
	r.refuses(errors.New("the state is away"))
	r.start()
	require.Eventually(t, func() bool { return r.fake.Calls(callbackCall) >= 2 }, patience, 1e6, "it is confirmed all the same")
	r.stop()
	r.refuses(nil)
	r.start()
	e := r.event(0)
	require.Equal(t, []any{"rx:1", at, "a bear"}, []any{e.Data, e.Message.ID, e.Filled["prompt"]})
}

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
		"invalid":   {func(r *rig) { r.fake.Invalidate(false) }, false},
		"moved":     {func(r *rig) { r.fake.Invalidate(true) }, true},
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

// The gateway may ask for a sign of life, too.
func TestHeartbeatOnDemand(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{Heartbeat: time.Hour})
	before := r.fake.Beats()
	r.fake.Beat()
	require.Eventually(t, func() bool { return r.fake.Beats() > before }, patience, 5*time.Millisecond)
}

// What was received and could not be stored is not lost with the process.
func TestNotStored(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{AckWithin: patience})
	r.refuses(errors.New("the state is away"))
	p := r.fake.Person(ada, channel, guild, "en-US")
	id := p.Use("generate", fakediscord.Option{Name: "prompt", Value: "1"})
	r.sees(p, "it is deferred all the same", func(m fakediscord.Message) bool { return m.Thinking })
	r.stop()
	r.refuses(nil)
	r.start()
	e := r.event(0)
	require.Equal(t, id, e.ID)
	require.Equal(t, byte('c'), e.Message.ID[0], "its answer is found again")
	require.Len(t, p.Sees(), 1)
}

// The bridge's memory may be away: commands are confirmed and stored as soon as it is
// back.
func TestMemoryAway(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{AckWithin: patience})
	r.memory.mu.Lock()
	r.memory.away = true
	r.memory.mu.Unlock()
	p := r.fake.Person(ada, channel, guild, "en-US")
	p.Use("generate", fakediscord.Option{Name: "prompt", Value: "1"})
	require.Equal(t, byte('c'), r.event(0).Message.ID[0])
}

func TestHealth(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{})
	require.Eventually(t, func() bool { return r.d.Health(time.Now()) == nil }, patience, 5*time.Millisecond)
	require.Error(t, r.d.Health(time.Now().Add(silence+time.Minute)))
	require.Equal(t, fakediscord.BotName, must.Get(r.d.Me(r.ctx))(t))
	r.stop()
	require.NoError(t, r.d.Health(time.Now().Add(time.Hour)), "it is not for this process to listen")

	wrong := r.o
	wrong.Token = "wrong"
	d := must.Get(New(wrong))(t)
	defer d.Close()
	_, err := d.Me(r.ctx)
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
	r := parallelRig(t, fakediscord.Options{})
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
	changed := must.Get(r.d.registerOnce(r.ctx))(t)
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
		changed = must.Get(r.d.registerOnce(r.ctx))(t)
		require.True(t, changed)
		changed = must.Get(r.d.registerOnce(r.ctx))(t)
		require.False(t, changed)
	}
}
