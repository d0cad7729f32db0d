package discord

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                           "",
		"a red fox":                  "a red fox",
		"*bold* _it_ ~~no~~ `x`":     `\*bold\* \_it\_ \~\~no\~\~ \` + "`x\\`",
		"||spoiler||":                `\|\|spoiler\|\|`,
		"# head\n> quote - no":       "\\# head\n\\> quote - no",
		"- item":                     `\- item`,
		"3/10 - 50 %":                "3/10 - 50 %",
		"<@123> <#4> <:x:5>":         `\<@123\> \<#4\> \<:x:5\>`,
		"[a](https://x.example/_b_":  `\[a\](https://x.example/_b_`,
		"https://x.example/a_b*c d_": `https://x.example/a_b*c d\_`,
	} {
		got := plain(text)
		if strings.Contains(text, "<") {
			require.Contains(t, got, `\<@123`)
			require.Contains(t, got, `\<#4`)
			continue
		}
		require.Equal(t, want, got, text)
	}
	long := plain(strings.Repeat("ы*", 2000))
	require.LessOrEqual(t, platform.Units(long), maxText)
	require.True(t, strings.HasSuffix(long, "…"))
	require.LessOrEqual(t, platform.Units(plain(strings.Repeat("🦊", 2000))), maxText)
}

func TestIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"1", "900000000000000001"} {
		require.True(t, isID(id), id)
	}
	for _, id := range []string{"", "0", "012", "-1", "1a", "@me", "../1", "1/2", strings.Repeat("1", 21), "１"} {
		require.False(t, isID(id), id)
	}
	for _, text := range []string{"1:a", "12:aW50ZXJhY3Rpb24-_="} {
		p, ok := parsePress(text)
		require.True(t, ok)
		require.Equal(t, text, p.String())
	}
	for _, text := range []string{"", ":", "1", "1:", ":a", "1:a/b", "1:..", "x:a", "1:a?b", "1:a%2f", "1:a b"} {
		_, ok := parsePress(text)
		require.False(t, ok, text)
	}
}

func FuzzPress(f *testing.F) {
	f.Add("1:abc")
	f.Add("900000000000000001:aW50/../x")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parsePress(text)
		if !ok {
			return
		}
		require.Equal(t, text, p.String())
		require.NotContains(t, p.id+p.token, "/")
		require.NotContains(t, p.token, "?")
		require.NotContains(t, p.token, "%")
	})
}

func FuzzPlain(f *testing.F) {
	f.Add("*a* https://x.example/_ <@1> \\")
	f.Fuzz(func(t *testing.T, text string) { require.LessOrEqual(t, platform.Units(plain(text)), maxText) })
}

func FuzzInteraction(f *testing.F) {
	f.Add([]byte(`{"id":"1","type":2,"token":"a","channel_id":"2","user":{"id":"3"},"data":{"name":"generate","options":[{"name":"prompt","value":"x"}]}}`))
	f.Add([]byte(`{"id":"1","type":3,"token":"a","channel_id":"2","user":{"id":"3"},"message":{"id":"4"},"data":{"custom_id":"menu:1","values":[]}}`))
	d := must.Get(New(Options{Token: "x", Commands: commands()}))(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		in, ok := readInteraction(raw)
		if !ok {
			return
		}
		e := d.event(in, "5")
		require.NotContains(t, e.Chat.ID, "/")
		require.NotEmpty(t, e.User.ID)
	})
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"id":"1","channel_id":"2","author":{"id":"3"},"content":"<@9> hi","mentions":[{"id":"9"}]}`))
	d := must.Get(New(Options{Token: "x", Direct: true}))(f)
	d.me.Store(&identity{"8", "9"})
	f.Fuzz(func(_ *testing.T, raw []byte) { d.said(raw, "said") })
}

// Discord covers a file by its name.
func TestSpoilersByName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "SPOILER_a.png", fileName(platform.Attachment{Name: "a.png", Spoiler: true}))
	require.Equal(t, "a.png", fileName(platform.Attachment{Name: "a.png"}))
}

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
		require.Equal(t, one.want, must.Get(p.Type(ctx, "generate", one.argument, one.typed))(t))
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

// A button opens an address. One that Discord does not take costs nobody the message, and
// a menu, which has no links, keeps those of its row below it.
func TestLinks(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{})
	p := r.fake.Person(ada, channel, guild, "en-US")
	help := platform.Button{Label: "Help", URL: "https://example.com/help"}
	row := []platform.Button{{Label: "Again", Data: "ag"}, help}
	for _, address := range []string{"ftp://example.com", "javascript:alert(1)", "http://[", "https://", "https://example.com/" + strings.Repeat("x", 500)} {
		row = append(row, platform.Button{Label: "Odd", URL: address})
	}
	long := []platform.Button{help}
	for i := range 6 {
		long = append(long, platform.Button{Label: fmt.Sprint(i), Data: fmt.Sprint("set:", i)})
	}
	var links []platform.Button
	for range 6 {
		links = append(links, help)
	}
	must.Get(r.d.Send(r.ctx, platform.Chat{ID: channel, Group: true}, platform.Post{Text: "choose", Buttons: [][]platform.Button{row, long, links}}))(t)
	m := r.sees(p, "the message", saying("choose"))
	link := fakediscord.Button{Label: "Help", URL: help.URL}
	want := []fakediscord.Button{{Label: "Again", Data: "ag"}, link}
	for i := range 6 {
		want = append(want, fakediscord.Button{Label: fmt.Sprint(i), Data: fmt.Sprint("set:", i), Menu: "menu:1"})
	}
	want = append(want, link, link, link, link, link, link) // five in a row at most
	require.Equal(t, want, m.Buttons)
	_, err := p.Press(m.ID, "Help")
	require.ErrorContains(t, err, "is a link")
}

// onMessages adds commands for messages. One has a form if asked so.
func onMessages(form bool) func(*Options) {
	return func(o *Options) {
		o.Commands = append(o.Commands,
			Command{Name: "info", OnMessage: true, Private: true, About: map[string]string{"": "How it was made", "ru": "Как это сделано"}},
			Command{Name: "generate", OnMessage: true, About: map[string]string{"": "New words"}},
		)
		if form {
			o.Form = func(_ context.Context, e platform.Event) *platform.Form {
				if e.Message.Text != "/generate" || e.Message.ReplyTo == nil {
					return nil
				}
				return &platform.Form{Title: "New words", Data: "rx:" + e.Message.ReplyTo.ID, Fields: []platform.Field{words("a fox")}}
			}
		}
	}
}

// registered waits until the commands are registered.
func (r *rig) registered() {
	r.t.Helper()
	require.Eventually(r.t, func() bool { list, _ := r.fake.Commands(); return len(list) > 0 }, patience, 1e6)
}

// A command on a message is an answer to that message, and what it says is for one person,
// all of it.
func TestOnMessage(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{}, onMessages(false))
	p := r.fake.Person(ada, channel, guild, "ru")
	r.registered()
	list, _ := r.fake.Commands()
	at := slices.IndexFunc(list, func(c map[string]any) bool { return c["name"] == "How it was made" })
	require.Equal(t, map[string]any{"ru": "Как это сделано"}, list[at]["name_localizations"])
	r.stop()
	r.start()
	require.Eventually(t, func() bool { return r.fake.Calls("GET /applications/{application_id}/commands") == 2 }, patience, 1e6)

	message := r.posted()
	must.Get(p.UseOn(message, "How it was made"))(t)
	e := r.event(0)
	require.Equal(t, []any{platform.Said, "/info", message, "a fox"}, []any{e.Kind, e.Message.Text, e.Message.ReplyTo.ID, e.Message.ReplyTo.Text})
	for _, text := range []string{"seed 7", "the workflow"} {
		must.Get(r.d.Send(r.ctx, e.Chat, platform.Post{ID: text, Text: text, ReplyTo: e.Message.ID, Private: true}))(t)
		require.Equal(t, ada, r.sees(p, text, saying(text)).Only)
	}
	require.Len(t, p.Sees(), 3, "nothing is left that says thinking")
	must.Get(p.UseOn(message, "New words"))(t)
	require.Equal(t, "/generate", r.event(1).Message.Text)
	require.Len(t, p.Sees(), 4, "and here others may answer")
	_, replaced := r.fake.Commands()
	require.Equal(t, 1, replaced, "they are the same after a restart")
}

// A command on a message may open a form; what says that it was heard takes the place of
// its deferred answer.
func TestFormOnMessage(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{}, onMessages(true))
	p := r.fake.Person(ada, channel, guild, "en-US")
	r.registered()
	message := r.posted()
	used := must.Get(p.UseOn(message, "New words"))(t)
	must.Get(p.Submit(r.form(p, used), map[string]string{"prompt": "a bear"}))(t)
	e := r.event(0)
	require.Equal(t, []any{platform.Pressed, "rx:" + message, map[string]string{"prompt": "a bear"}}, []any{e.Kind, e.Data, e.Filled})
	require.NoError(t, r.d.Answer(r.ctx, e.Press, "on it"))
	require.Equal(t, ada, r.sees(p, "the answer", saying("on it")).Only)
	require.Len(t, p.Sees(), 2)
}

func TestWork(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{})
	require.NoError(t, r.d.Work(r.ctx, platform.Chat{ID: channel}, platform.Photo))
	require.Equal(t, 1, r.fake.Calls("POST /channels/{channel_id}/typing"))
	require.ErrorIs(t, r.d.Work(r.ctx, platform.Chat{ID: "../x"}, platform.Photo), platform.ErrRefused, "an id is no path")
}
