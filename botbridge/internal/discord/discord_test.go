package discord

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
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

const (
	postCall     = "POST /channels/{channel_id}/messages"
	callbackCall = "POST /interactions/{interaction_id}/{interaction_token}/callback"
	findCall     = "GET /webhooks/{webhook_id}/{webhook_token}/messages/@original"
	originalCall = "PATCH /webhooks/{webhook_id}/{webhook_token}/messages/@original"
	putCall      = "PUT /applications/{application_id}/commands"
)

func picture(name string, data []byte) platform.Attachment {
	return platform.Attachment{Name: name, Media: platform.Photo, Size: int64(len(data)), Open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}

// A command is deferred at once, its answer takes the place of "thinking…", and the
// picture the place of that.
func TestCommand(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{})
	p := r.fake.Person(ada, channel, guild, "ru")
	id := p.Use("generate",
		fakediscord.Option{Name: "prompt", Value: "a red fox --steps 5"}, fakediscord.Option{Name: "negative", Value: "text, blur"},
		fakediscord.Option{Name: "count", Value: 2}, fakediscord.Option{Name: "strength", Value: 0.5}, fakediscord.Option{Name: "size", Value: "768x512"},
		fakediscord.Option{Name: "file", Value: true}, fakediscord.Option{Name: "image", Value: []byte("png")},
	)
	e := r.event(0)
	require.Equal(t, platform.Said, e.Kind)
	require.Equal(t, id, e.ID)
	require.Equal(t, platform.Chat{ID: channel, Group: true}, e.Chat)
	require.Equal(t, "ru", e.User.Language)
	require.Equal(t, `/generate a red fox --steps 5 --size 768x512 --no "text, blur" --count 2 --strength 0.5 --file`, e.Message.Text)
	require.Len(t, e.Message.Files, 1)
	body := must.Get(r.d.Open(r.ctx, e.Message.Files[0]))(t)
	data := must.Get(io.ReadAll(body))(t)
	body.Close()
	require.Equal(t, "png", string(data))
	waiting := r.sees(p, "thinking", func(m fakediscord.Message) bool { return m.Thinking })

	status := platform.Post{ID: "status", Text: "On its way", ReplyTo: e.Message.ID, Buttons: [][]platform.Button{{{Label: "Cancel", Data: "ca:1"}}}}
	ids := must.Get(r.d.Send(r.ctx, e.Chat, status))(t)
	require.Equal(t, []string{waiting.ID}, ids)
	require.Equal(t, ids, must.Get(r.d.Send(r.ctx, e.Chat, status))(t), "the same post is no second message")
	require.NoError(t, r.d.Edit(r.ctx, e.Chat, ids[0], platform.Post{Text: "50 %"}))
	require.Empty(t, r.sees(p, "progress", saying("50 %")).Buttons)
	require.NoError(t, r.d.Edit(r.ctx, e.Chat, ids[0], platform.Post{Text: "@everyone a fox", Files: []platform.Attachment{picture("a.png", []byte("1")), picture("b.png", []byte("2"))}}))
	m := r.sees(p, "pictures", saying("@everyone a fox"))
	require.Equal(t, []string{"a.png", "b.png"}, m.Files)
	require.Empty(t, m.Pings)
	require.Len(t, p.Sees(), 1)
	require.Zero(t, r.fake.Calls(postCall))
}

// After 15 minutes the token of an answer has ended; its message is edited as any other.
func TestTokenEnds(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{})
	p := r.fake.Person(ada, channel, guild, "en-US")
	p.Use("generate", fakediscord.Option{Name: "prompt", Value: "slow"})
	e := r.event(0)
	ids := must.Get(r.d.Send(r.ctx, e.Chat, platform.Post{ID: "1", Text: "noted", ReplyTo: e.Message.ID}))(t)
	r.fake.Expire()
	require.NoError(t, r.d.Edit(r.ctx, e.Chat, ids[0], platform.Post{Text: "done", Files: []platform.Attachment{picture("a.png", []byte("1"))}}))
	require.Equal(t, []string{"a.png"}, r.sees(p, "the picture", saying("done")).Files)
	require.NoError(t, r.d.Edit(r.ctx, e.Chat, ids[0], platform.Post{Text: "still"}))
	require.Equal(t, 2, r.fake.Calls("PATCH /channels/{channel_id}/messages/{message_id}"))
	require.Equal(t, 2, r.fake.Calls(originalCall), "a token that has ended is not tried again")

	p.Use("generate", fakediscord.Option{Name: "prompt", Value: "slower"})
	e = r.event(1)
	r.fake.Expire()
	post := platform.Post{ID: "2", Text: "late", ReplyTo: e.Message.ID}
	first := must.Get(r.d.Send(r.ctx, e.Chat, post))(t)
	second := must.Get(r.d.Send(r.ctx, e.Chat, post))(t)
	require.Equal(t, first, second)
	r.sees(p, "an ordinary message", saying("late"))
	for _, m := range p.Sees() {
		require.False(t, m.Thinking, "nothing waits for ever")
	}

	// A post that has replaced it is known after a restart, too.
	p.Use("generate", fakediscord.Option{Name: "prompt", Value: "slowest"})
	e = r.event(2)
	post = platform.Post{ID: "3", Text: "noted", ReplyTo: e.Message.ID}
	first = must.Get(r.d.Send(r.ctx, e.Chat, post))(t)
	r.stop()
	r.fake.Expire()
	r.start()
	second = must.Get(r.d.Send(r.ctx, e.Chat, post))(t)
	require.Equal(t, first, second)
}

// What concerns one person is seen by that person alone.
func TestPrivate(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{})
	p, other := r.fake.Person(ada, channel, guild, "en-US"), r.fake.Person(bob, channel, guild, "en-US")
	p.Use("generate", fakediscord.Option{Name: "prompt", Value: "x"})
	e := r.event(0)
	must.Get(r.d.Send(r.ctx, e.Chat, platform.Post{ID: "1", Text: "too much", ReplyTo: e.Message.ID, Private: true}))(t)
	r.sees(p, "the complaint", saying("too much"))
	require.Len(t, p.Sees(), 1, "nobody thinks any more")
	require.Empty(t, other.Sees())

	p.Use("help")
	e = r.event(1)
	require.Empty(t, other.Sees(), "a private command is deferred privately")
	ids := must.Get(r.d.Send(r.ctx, e.Chat, platform.Post{ID: "2", Text: "settings", ReplyTo: e.Message.ID, Buttons: [][]platform.Button{{{Label: "ru", Data: "set:ru"}}}}))(t)
	require.Empty(t, other.Sees())
	r.fake.Expire()
	must.Get(p.Press(ids[0], "ru"))(t)
	e = r.event(2)
	require.Equal(t, ids[0], e.Message.ID)
	require.NoError(t, r.d.Edit(r.ctx, e.Chat, ids[0], platform.Post{Text: "настройки"}), "by the press")
	r.sees(p, "the change", saying("настройки"))
}

func TestPress(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{})
	p, other := r.fake.Person(ada, channel, guild, "en-US"), r.fake.Person(bob, channel, guild, "en-US")
	var many []platform.Button
	for _, c := range "abcdefgh" {
		many = append(many, platform.Button{Label: string(c), Data: "set:" + string(c)})
	}
	ids := must.Get(r.d.Send(r.ctx, platform.Chat{ID: channel, Group: true}, platform.Post{
		ID: "1", Text: "choose", Buttons: [][]platform.Button{{{Label: "Status", Data: "st:1"}}, many},
	}))(t)
	press := must.Get(other.Press(ids[0], "Status"))(t)
	e := r.event(0)
	require.Equal(t, platform.Pressed, e.Kind)
	require.Equal(t, "st:1", e.Data)
	require.Equal(t, bob, e.User.ID)
	require.Equal(t, press, e.ID)
	require.NoError(t, r.d.Answer(r.ctx, e.Press, "66 %"))
	r.sees(other, "the answer", saying("66 %"))
	require.Len(t, p.Sees(), 1, "others do not see it")
	require.NoError(t, r.d.Answer(r.ctx, e.Press, ""))
	must.Get(p.Press(ids[0], "f"))(t)
	require.Equal(t, "set:f", r.event(1).Data, "a choice in a menu is like a button")
	require.ErrorIs(t, r.d.Answer(r.ctx, "1:../../users/@me", "x"), platform.ErrRefused)
}

// A reply that is lost after a post is asked for again and makes no second message.
func TestReplyLost(t *testing.T) {
	beside.Cases(t, map[string]fakediscord.Fault{"cut": fakediscord.CutAfter, "hangs": fakediscord.HangAfter}, func(t *testing.T, fault fakediscord.Fault) {
		var lost atomic.Bool
		r := newRig(t, fakediscord.Options{Fault: func(call string) fakediscord.Fault {
			if call == postCall && !lost.Swap(true) {
				return fault
			}
			return fakediscord.None
		}})
		p := r.fake.Person(ada, channel, guild, "en-US")
		post := platform.Post{ID: "picture", Text: "fox", Files: []platform.Attachment{picture("a.png", []byte("1"))}}
		ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
		defer cancel()
		_, err := r.d.Send(ctx, platform.Chat{ID: channel}, post)
		require.ErrorIs(t, err, platform.ErrUncertain)
		ids := must.Get(r.d.Send(r.ctx, platform.Chat{ID: channel}, post))(t)
		require.Len(t, p.Sees(), 1)
		require.Equal(t, p.Sees()[0].ID, ids[0])
	})
}

// The first answer to a command is tried again, also if only its answer was lost. Which
// message it made is then asked for until that is answered.
func TestDeferral(t *testing.T) {
	beside.Cases(t, map[string][2]fakediscord.Fault{
		"cut before": {fakediscord.CutBefore}, "cut after": {fakediscord.CutAfter}, "broken": {fakediscord.Broken},
		"cut after, then broken": {fakediscord.CutAfter, fakediscord.Broken}, "cut after, then flooded": {fakediscord.CutAfter, fakediscord.Flood},
	}, func(t *testing.T, faults [2]fakediscord.Fault) {
		var failed, asked atomic.Bool
		r := newRig(t, fakediscord.Options{RetryAfter: time.Second, Fault: func(call string) fakediscord.Fault {
			switch {
			case call == callbackCall && !failed.Swap(true):
				return faults[0]
			case call == findCall && !asked.Swap(true):
				return faults[1]
			}
			return fakediscord.None
		}})
		p := r.fake.Person(ada, channel, guild, "en-US")
		p.Use("generate", fakediscord.Option{Name: "prompt", Value: "x"})
		e := r.event(0)
		must.Get(r.d.Send(r.ctx, e.Chat, platform.Post{ID: "1", Text: "noted", ReplyTo: e.Message.ID}))(t)
		m := r.sees(p, "the answer", saying("noted"))
		require.True(t, m.Used, "it is the answer to the command")
		require.Len(t, p.Sees(), 1)
	})
}

// A command that could not be confirmed is answered by an ordinary message.
func TestTooLate(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{AckWithin: time.Nanosecond})
	p := r.fake.Person(ada, channel, guild, "en-US")
	p.Use("generate", fakediscord.Option{Name: "prompt", Value: "x"})
	e := r.event(0)
	must.Get(r.d.Send(r.ctx, e.Chat, platform.Post{ID: "1", Text: "noted", ReplyTo: e.Message.ID}))(t)
	require.False(t, r.sees(p, "the answer", saying("noted")).Used)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	var fault atomic.Int64
	r := newRig(t, fakediscord.Options{
		NoAccess: []string{"900000000000000099"}, RetryAfter: 3 * time.Second, Upload: 1000,
		Fault: func(call string) fakediscord.Fault {
			if call == postCall {
				return fakediscord.Fault(fault.Load())
			}
			return fakediscord.None
		},
	})
	to := platform.Chat{ID: channel}
	for name, c := range map[string]struct {
		to   platform.Chat
		post platform.Post
		want error
	}{
		"no access":     {platform.Chat{ID: "900000000000000099"}, platform.Post{Text: "x"}, platform.ErrForbidden},
		"no id":         {platform.Chat{ID: "../users"}, platform.Post{Text: "x"}, platform.ErrRefused},
		"empty":         {to, platform.Post{}, platform.ErrRefused},
		"too large":     {to, platform.Post{Text: "x", Files: []platform.Attachment{picture("a.png", make([]byte, 1001))}}, platform.ErrTooLarge},
		"source":        {to, platform.Post{Text: "x", Files: []platform.Attachment{{Name: "a", Open: func(context.Context) (io.ReadCloser, error) { return nil, errors.New("no") }}}}, platform.ErrSource},
		"source breaks": {to, platform.Post{Text: "x", Files: []platform.Attachment{{Name: "a", Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(breaking{}), nil }}}}, platform.ErrSource},
	} {
		_, err := r.d.Send(r.ctx, c.to, c.post)
		require.ErrorIs(t, err, c.want, name)
	}
	require.ErrorIs(t, r.d.Edit(r.ctx, to, "900000000000000098", platform.Post{Text: "x"}), platform.ErrGone)
	require.NoError(t, r.d.Delete(r.ctx, to, "900000000000000098"), "a missing message is no error")
	require.ErrorIs(t, r.d.Edit(r.ctx, to, "@me", platform.Post{Text: "x"}), platform.ErrRefused)

	fault.Store(int64(fakediscord.Broken))
	_, err := r.d.Send(r.ctx, to, platform.Post{ID: "b", Text: "x"})
	require.ErrorIs(t, err, platform.ErrUncertain)
	fault.Store(int64(fakediscord.FloodAll))
	var wait *platform.WaitError
	_, err = r.d.Send(r.ctx, to, platform.Post{ID: "c", Text: "x"})
	require.ErrorAs(t, err, &wait)
	fault.Store(int64(fakediscord.None))
	calls := r.fake.Calls("GET /gateway/bot")
	require.ErrorAs(t, r.d.rest.do(r.ctx, call{method: http.MethodGet, path: "/gateway/bot"}, nil), &wait, "the limit is on all calls")
	require.Equal(t, calls, r.fake.Calls("GET /gateway/bot"), "a call that would be refused is not made")
	require.Eventually(t, func() bool {
		_, err := r.d.Send(r.ctx, to, platform.Post{ID: "c", Text: "x"})
		return err == nil
	}, patience, 10*time.Millisecond)
}

type breaking struct{}

func (breaking) Read([]byte) (int, error) { return 0, errors.New("the hub has gone") }

// The limit of a channel is obeyed before it is broken.
func TestBucket(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{PerFiveSeconds: 1})
	to := platform.Chat{ID: channel}
	must.Get(r.d.Send(r.ctx, to, platform.Post{ID: "1", Text: "one"}))(t)
	var wait *platform.WaitError
	_, err := r.d.Send(r.ctx, to, platform.Post{ID: "2", Text: "two"})
	require.ErrorAs(t, err, &wait)
	require.Equal(t, 1, r.fake.Calls(postCall))
	_, err = r.d.Send(r.ctx, platform.Chat{ID: bob}, platform.Post{ID: "3", Text: "three"})
	require.NoError(t, err, "another channel has its own limit")
}

// A stranger's server, a role that is missing and a private chat are kept out.
func TestStrangers(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{}, func(o *Options) { o.Guilds, o.Roles, o.Direct = []string{guild}, []string{"77777777777777777"}, false })
	foreign := r.fake.Person(ada, channel, "900000000000000055", "en-US")
	foreign.Use("generate", fakediscord.Option{Name: "prompt", Value: "x"})
	m := r.sees(foreign, "a refusal", saying("not_here"))
	require.Equal(t, ada, m.Only)
	private := r.fake.Person(ada, "900000000000000056", "", "en-US")
	private.Use("generate", fakediscord.Option{Name: "prompt", Value: "x"})
	r.sees(private, "a refusal", saying("not_here"))
	private.Say("hello", "")
	none := r.fake.Person(ada, "900000000000000057", guild, "en-US")
	none.Use("generate", fakediscord.Option{Name: "prompt", Value: "x"})
	r.sees(none, "a refusal", saying("not_here"))
	member := r.fake.Person(bob, channel, guild, "en-US")
	member.Roles = []string{"77777777777777777"}
	id := member.Use("generate", fakediscord.Option{Name: "prompt", Value: "x"})
	require.Equal(t, id, r.event(0).ID, "the first event is the member's")
}

func TestMessages(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{})
	p, private := r.fake.Person(ada, channel, guild, ""), r.fake.Person(ada, "900000000000000056", "", "")
	p.Say("hello everybody", "")
	asked := p.Say("<@"+fakediscord.BotUser+"> a red fox", "", []byte("png"))
	e := r.event(0)
	require.Equal(t, "a red fox", e.Message.Text)
	require.Equal(t, asked, e.Message.ID)
	require.True(t, e.Addressed)
	require.Len(t, e.Message.Files, 1)
	ids := must.Get(r.d.Send(r.ctx, e.Chat, platform.Post{ID: "1", Text: "noted", ReplyTo: e.Message.ID}))(t)
	require.Equal(t, asked, r.sees(p, "a reply", saying("noted")).ReplyTo)
	p.Say("/cancel", ids[0])
	e = r.event(1)
	require.Equal(t, "/cancel", e.Message.Text)
	require.Equal(t, ids[0], e.Message.ReplyTo.ID)
	m := private.Say("a blue fox", "")
	require.False(t, r.event(2).Chat.Group)
	private.Change(m, "a green fox")
	e = r.event(3)
	require.Equal(t, platform.Edited, e.Kind)
	require.Equal(t, "a green fox", e.Message.Text)
	require.Equal(t, m, e.Message.ID)
}

// Files are read from Discord and from nowhere else, and only as large as allowed.
func TestOpen(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{}, func(o *Options) { o.Download = 10 })
	for _, address := range []string{
		"https://evil.example/a.png", "http://cdn.discordapp.com/a.png", "https://cdn.discordapp.com@evil.example/a", "file:///etc/passwd", "://", "",
		"https://cdn.discordapp.com.evil.example/a.png", "https://x:y@cdn.discordapp.com/a.png",
	} {
		_, err := r.d.Open(r.ctx, platform.File{ID: address})
		if err == nil || !errors.Is(err, platform.ErrRefused) {
			// http is the scheme of the fake, and its host alone is admitted with it.
			require.Equal(t, "http://cdn.discordapp.com/a.png", address)
		}
	}
	p := r.fake.Person(ada, channel, guild, "")
	p.Use("generate", fakediscord.Option{Name: "prompt", Value: "x"}, fakediscord.Option{Name: "image", Value: []byte(strings.Repeat("x", 11))})
	f := r.event(0).Message.Files[0]
	_, err := r.d.Open(r.ctx, f)
	require.ErrorIs(t, err, platform.ErrTooLarge)
	f.Size = 0 // it lies
	_, err = r.d.Open(r.ctx, f)
	require.ErrorIs(t, err, platform.ErrTooLarge)
	f.ID += "gone"
	_, err = r.d.Open(r.ctx, f)
	require.ErrorIs(t, err, platform.ErrGone)
}

// A missing right is told from a missing way in: only files are refused.
func TestNoRightToAttach(t *testing.T) {
	t.Parallel()
	response := &http.Response{StatusCode: http.StatusForbidden}
	body := []byte(`{"code": 50013, "message": "Missing Permissions"}`)
	r := newREST("", "", nil)
	require.ErrorIs(t, r.refused(call{files: make([]platform.Attachment, 1)}, response, body), platform.ErrNoMedia)
	require.ErrorIs(t, r.refused(call{}, response, body), platform.ErrForbidden)
}
