package world_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const (
	server  = "900000000000000001"
	channel = "900000000000000002"
)

// newDiscordRig is a rig whose bridge is on Discord only. change may alter its options.
func newDiscordRig(t *testing.T, o fakediscord.Options, change ...func(*options)) *rig {
	t.Helper()
	if o.AckWithin == 0 {
		o.AckWithin = patience // a process of a busy machine may stand still
	}
	discord := func(s *options) {
		s.Config = strings.Replace(botYAML, "telegram: {rate: 10}", "discord: {guilds: [\""+server+"\"]}", 1)
		s.Discord = o
	}
	r := newRig(t, append([]func(*options){discord}, change...)...)
	t.Cleanup(func() { require.Empty(t, r.Discord.Violations(), "everything fits Discord's own document") })
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	require.NoError(t, r.Discord.AwaitSession(ctx))
	return r
}

func (r *rig) member(id, locale string) *fakediscord.Person {
	return r.Discord.Person("90000000000000010"+id, channel, server, locale)
}

// sees waits for a message of the bot on Discord.
func (r *rig) sees(p *fakediscord.Person, what string, fits func(fakediscord.Message) bool) fakediscord.Message {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	m, all, err := p.Wait(ctx, fits)
	require.NoError(r.t, err, "%s; there is %+v", what, all)
	return m
}

func hasFiles(n int) func(fakediscord.Message) bool {
	return func(m fakediscord.Message) bool { return len(m.Files) == n }
}

func says(text string) func(fakediscord.Message) bool {
	return func(m fakediscord.Message) bool { return strings.Contains(m.Text, text) }
}

func prompt(text string) fakediscord.Option { return fakediscord.Option{Name: "prompt", Value: text} }

func (r *rig) presses(p *fakediscord.Person, m fakediscord.Message, label string) {
	r.t.Helper()
	must.Get(p.Press(m.ID, label))(r.t)
}

// From the command by way of "thinking…" and the progress to the picture, all in one
// message; then what its buttons do.
func TestDiscord(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newDiscordRig(t, fakediscord.Options{})
		ada, bob := r.member("1", "ru"), r.member("2", "en-US")
		ada.Use("generate", prompt("@everyone a red fox"), fakediscord.Option{Name: "count", Value: 2}, fakediscord.Option{Name: "seed", Value: 7})
		m := r.sees(ada, "two pictures", hasFiles(2))
		require.True(t, m.Used, "in the answer to the command")
		require.Contains(t, m.Text, "@everyone a red fox")
		require.Empty(t, m.Pings)
		require.Len(t, bob.Sees(), 1)
		require.NotEmpty(t, m.Bytes[0])

		// A reply with the file of another person, and a wrong argument, privately.
		bob.Use("generate", prompt("x --size huge"))
		require.NotEmpty(t, r.sees(bob, "a complaint", says("--size")).Only)
		for _, other := range ada.Sees() {
			require.NotContains(t, other.Text, "--size")
		}
		require.NotEmpty(t, func() string { bob.Use("help"); return r.sees(bob, "help", says("/generate")).Only }())

		r.presses(ada, m, "Ещё")
		again := r.sees(ada, "two more pictures", func(n fakediscord.Message) bool { return n.ID != m.ID && len(n.Files) == 2 })
		require.NotEqual(t, m.Bytes[0], again.Bytes[0], "another seed")

		// Forged buttons: of no request, of a request of another channel.
		bob.Forge(m.ID, "ag:00000000-0000-0000-0000-000000000000")
		r.sees(bob, "a refusal", says("no longer works"))
		elsewhere := r.Discord.Person(bob.ID, "900000000000000077", server, "en-US")
		elsewhere.Forge("900000000000000078", m.Buttons[0].Data)
		r.sees(elsewhere, "a refusal", says("no longer works"))
		foreign := r.Discord.Person(bob.ID, "900000000000000079", "900000000000000080", "en-US")
		foreign.Use("generate", prompt("x"))
		r.sees(foreign, "a refusal", says("can't use me here"))

		// Pictures that somebody sends.
		ada.Use("upscale", fakediscord.Option{Name: "image", Value: m.Bytes[0]})
		r.sees(ada, "a larger picture", func(n fakediscord.Message) bool { return n.ID != m.ID && n.ID != again.ID && len(n.Files) == 1 })
	})
}

// Only the requester stops a request, and is told in private what the machines do.
func TestDiscordCancel(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newDiscordRig(t, fakediscord.Options{})
		ada, bob := r.member("1", "en-US"), r.member("2", "en-US")
		ada.Use("endless")
		m := r.sees(ada, "the status", func(m fakediscord.Message) bool { return !m.Thinking && len(m.Buttons) == 2 })
		r.presses(bob, m, "Cancel")
		require.Equal(t, bob.ID, r.sees(bob, "a refusal", says("isn't yours")).Only)
		r.presses(ada, m, "Cancel")
		ended := r.sees(ada, "the end", says("Stopped."))
		require.Equal(t, m.ID, ended.ID)
	})
}

// The bridge is killed while requests are at every stage, and the token of an answer
// ends meanwhile.
func TestDiscordKilled(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newDiscordRig(t, fakediscord.Options{})
		ada := r.member("1", "en-US")
		ada.Use("slow")
		ada.Use("work")
		r.sees(ada, "the status", func(m fakediscord.Message) bool { return !m.Thinking })
		r.Bridge.Kill()
		ada.Use("work") // nobody is there
		r.Discord.Expire()
		r.Bridge.Start(t)
		r.until("three pictures", func() bool { return pictures(ada) == 3 })
		r.until("no message is left", func() bool {
			return !slices.ContainsFunc(ada.Sees(), func(m fakediscord.Message) bool { return len(m.Files) != 1 })
		})
		_, resumed := r.Discord.Sessions()
		require.Positive(t, resumed)
	})
}

func pictures(p *fakediscord.Person) (n int) {
	for _, m := range p.Sees() {
		n += len(m.Files)
	}
	return n
}

// The gateway falls silent, calls are refused for being too many, and answers are lost:
// each request has one picture.
func TestDiscordTrouble(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var calls atomic.Int64
		r := newDiscordRig(t, fakediscord.Options{Heartbeat: 3 * time.Second, Fault: func(call string) fakediscord.Fault {
			if strings.HasPrefix(call, "GET /applications") || strings.HasPrefix(call, "GET /gateway") {
				return fakediscord.None
			}
			switch calls.Add(1) % 7 {
			case 2:
				return fakediscord.Flood
			case 4:
				return fakediscord.CutAfter
			case 5:
				return fakediscord.Broken
			}
			return fakediscord.None
		}})
		ada := r.member("1", "en-US")
		for range 3 {
			ada.Use("work")
		}
		r.Discord.Silence()
		for range 3 {
			ada.Use("work")
		}
		r.until("six pictures", func() bool { return pictures(ada) >= 6 })
		r.until("no request is unfinished", func() bool {
			for _, m := range ada.Sees() {
				if len(m.Files) == 0 && !strings.Contains(m.Text, "✓") {
					return false
				}
			}
			return true
		})
		require.Equal(t, 6, pictures(ada))
	})
}

// The menu of a picture on Discord is for whoever opened it, and is one message.
func TestDiscordMenu(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newDiscordRig(t, fakediscord.Options{}, func(s *options) {
			s.Config = "files_url: http://hub1:8188\nhelp_url: https://example.com/bot\n" + s.Config
		})
		ada, bob := r.member("1", "en-US"), r.member("2", "en-US")
		ada.Use("generate", prompt("a red fox"), fakediscord.Option{Name: "seed", Value: 7})
		picture := r.sees(ada, "the picture", hasFiles(1))
		r.presses(bob, picture, "More")
		menu := r.sees(bob, "what made it", says("Took "))
		require.Equal(t, bob.ID, menu.Only)
		require.Contains(t, menu.Text, "Seed 7")
		r.presses(bob, menu, "Workflow")
		file := r.sees(bob, "the workflow", func(m fakediscord.Message) bool { return m.ID != picture.ID && len(m.Files) == 1 })
		require.Equal(t, bob.ID, file.Only)
		require.Contains(t, string(file.Bytes[0]), "a red fox")
		r.presses(bob, menu, "Remove")
		r.sees(bob, "a refusal", says("isn't yours"))

		original := opens(t, menu, "Original")
		response, err := r.web().Get(original) //nolint:noctx // the address is what is tested
		require.NoError(t, err)
		body := must.Get(io.ReadAll(response.Body))(t)
		require.NoError(t, response.Body.Close())
		require.Equal(t, picture.Bytes[0], body)
		bob.Use("help")
		require.Equal(t, "https://example.com/bot", opens(t, r.sees(bob, "the help", says("/my - ")), "More about me"))

		// New words are filled into a form that has the present ones.
		press := must.Get(bob.Press(menu.ID, "New words"))(t)
		form := must.Get(bob.Form(r.ctx, press))(t)
		require.Equal(t, "a red fox", form.Fields[0].Value)
		must.Get(bob.Submit(form, map[string]string{"prompt": "a blue bear"}))(t)
		bear := r.sees(bob, "a picture with the new words", func(m fakediscord.Message) bool { return len(m.Files) == 1 && strings.Contains(m.Text, "a blue bear") })
		require.Contains(t, bear.Text, "Seed 7")

		// The same by the menu of the message.
		used := must.Get(bob.UseOn(bear.ID, "How it was made"))(t)
		require.NotEmpty(t, used)
		require.Equal(t, bob.ID, r.sees(bob, "what made the other", says("/generate\na blue bear")).Only)
		require.Equal(t, bob.ID, r.sees(bob, "its workflow", func(m fakediscord.Message) bool {
			return slices.Equal(m.Files, []string{"generate.json"}) && strings.Contains(string(m.Bytes[0]), "a blue bear")
		}).Only)
		used = must.Get(bob.UseOn(bear.ID, "New words"))(t)
		form = must.Get(bob.Form(r.ctx, used))(t)
		require.Equal(t, "a blue bear", form.Fields[0].Value)
		must.Get(bob.Submit(form, map[string]string{"prompt": "an owl"}))(t)
		owl := r.sees(ada, "a picture with these", func(m fakediscord.Message) bool { return len(m.Files) == 1 && strings.Contains(m.Text, "an owl") })
		r.until("nothing is left of the command", func() bool {
			return !slices.ContainsFunc(bob.Sees(), func(m fakediscord.Message) bool { return m.Thinking })
		})
		must.Get(bob.UseOn(bear.ID, "Remove"))(t)
		sure := r.sees(bob, "the question", says("Remove this picture"))
		require.Equal(t, bob.ID, sure.Only)
		r.presses(bob, sure, "Yes")
		r.until("it goes", func() bool {
			return !slices.ContainsFunc(ada.Sees(), func(m fakediscord.Message) bool { return m.ID == bear.ID })
		})

		r.presses(ada, picture, "More")
		own := r.sees(ada, "what made it", says("Took "))
		r.presses(ada, own, "Remove")
		asking := r.sees(ada, "the question", says("Remove this picture"))
		require.Equal(t, own.ID, asking.ID)
		r.presses(ada, asking, "Yes")
		r.until("the picture goes, with what was said of it", func() bool {
			for _, m := range ada.Sees() {
				if m.ID != owl.ID && (len(m.Files) > 0 || strings.Contains(m.Text, "fox")) {
					return false
				}
			}
			return true
		})

		// What a command lacks is filled in, too.
		ada.Say("<@"+fakediscord.BotUser+"> /generate", "")
		question := r.sees(ada, "the question", says("What do you want to see"))
		press = must.Get(ada.Press(question.ID, "Reply"))(t)
		form = must.Get(ada.Form(r.ctx, press))(t)
		must.Get(ada.Submit(form, map[string]string{"prompt": "a hedgehog"}))(t)
		r.sees(ada, "its picture", func(m fakediscord.Message) bool { return len(m.Files) == 1 && strings.Contains(m.Text, "a hedgehog") })
	})
}

// opens is the address that a button opens.
func opens(t *testing.T, m fakediscord.Message, label string) string {
	t.Helper()
	at := slices.IndexFunc(m.Buttons, func(b fakediscord.Button) bool { return strings.Contains(b.Label, label) && b.URL != "" })
	require.GreaterOrEqual(t, at, 0, "%q under %+v", label, m)
	return m.Buttons[at].URL
}
