package conversation

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// chats is a platform that notes what is said where.
type chats struct {
	platform.Platform

	mu   sync.Mutex
	said map[string][]string // by chat
	fail map[string]error    // by chat
	n    int
	gone []string // deleted messages
	// posts are all posts, and edits what messages were changed into.
	posts  []platform.Post
	edits  []platform.Post
	stuck  map[string]bool   // messages that cannot be removed
	menus  map[string]string // what is left out of them, by chat
	forms  bool
	covers bool
	files  map[string]string // what files hold, by id
	offers []platform.Offer
	lost   bool // pictures cannot be offered any more
}

func (c *chats) Name() string { return "telegram" }
func (c *chats) Limits() platform.Limits {
	return platform.Limits{Text: 4096, Caption: 1024, Forms: c.forms, Covers: c.covers, Inline: true}
}

func (c *chats) Offer(_ context.Context, _ string, o platform.Offer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Shown != nil && c.lost {
		return platform.ErrGone
	}
	c.offers = append(c.offers, o)
	return nil
}

func (c *chats) Send(_ context.Context, to platform.Chat, p platform.Post) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.fail[to.ID]; err != nil {
		return nil, err
	}
	c.said[to.ID] = append(c.said[to.ID], p.Text)
	c.posts = append(c.posts, p)
	c.n++
	return []string{"b" + strconv.Itoa(c.n)}, nil
}

func (c *chats) Edit(_ context.Context, _ platform.Chat, _ string, p platform.Post) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.edits = append(c.edits, p)
	return nil
}

func (c *chats) Delete(_ context.Context, _ platform.Chat, message string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck[message] {
		return platform.ErrRefused
	}
	c.gone = append(c.gone, message)
	return nil
}

// Moderates makes user 9 an administrator of every group.
func (c *chats) Moderates(_ context.Context, _ platform.Chat, user string) (bool, error) {
	return user == "9", nil
}

func (c *chats) Menu() string { return "menu" }

func (c *chats) Hide(_ context.Context, in platform.Chat, commands []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.fail["menu"]; err != nil {
		return err
	}
	c.menus[in.ID] = strings.Join(commands, " ")
	return nil
}

func (c *chats) Answer(context.Context, string, string) error { return nil }

func (c *chats) Open(_ context.Context, f platform.File) (io.ReadCloser, error) {
	if data, ok := c.files[f.ID]; ok {
		return io.NopCloser(strings.NewReader(data)), nil
	}
	return nil, platform.ErrSource // later, perhaps
}

func (c *chats) in(chat string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.said[chat]...)
}

// heard is the last that was said in a chat.
func (r *rig) heard(chat string) string {
	said := r.p.in(chat)
	return said[len(said)-1]
}

// rig is a Talk with a hub that accepts every prompt and never begins it.
type rig struct {
	t     *testing.T
	ctx   context.Context
	p     *chats
	talk  *Talk
	store *state.Store
	away  *atomic.Bool // the hub says nothing of its nodes
	fails *atomic.Bool // every run fails
	last  int
	// commands are those that the runner knows.
	commands map[string]*workflow.Command
}

// parallelRig is newRig for a test that runs beside others.
func parallelRig(t *testing.T, c limits.Config) *rig {
	t.Helper()
	t.Parallel()
	return newRig(t, c)
}

func newRig(t *testing.T, c limits.Config) *rig {
	t.Helper()
	return newRigOn(t, c, must.Get(state.Open(context.WithoutCancel(t.Context()), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{}))(t))
}

// newRigOn is newRig with a state of the test's own.
func newRigOn(t *testing.T, c limits.Config, store *state.Store) *rig {
	t.Helper()
	away, fails := &atomic.Bool{}, &atomic.Bool{}
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/prompt" || r.URL.Path == "/api/prompt" {
			_, _ = w.Write([]byte(`{"prompt_id": "x", "number": 1, "node_errors": {}}`))
			return
		}
		if r.URL.Path == "/object_info/Text" && !away.Load() {
			_, _ = w.Write([]byte(`{"Text": {"input": {"required": {"cfg": ["FLOAT", {"min": 0, "max": 100}], "note": ["STRING", {}],
				"sampler_name": [["euler", "heun", "dpmpp_2m", "a", "b", "c", "d", "e"]]}}}}`))
			return
		}
		if strings.HasPrefix(r.URL.Path, "/hub/jobs/") && fails.Load() {
			_, _ = w.Write([]byte(`{"status": "failed", "error": "no such file: /srv/a.pt"}`))
			return
		}
		if body, _ := io.ReadAll(r.Body); r.URL.Path == "/hub/files" && bytes.Contains(body, []byte("linked")) {
			_, _ = w.Write([]byte(`{"url": "/hub/files/linked.png?signature=s"}`))
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	client := must.Get(hubapi.New(hub.URL, hubapi.Options{}))(t)
	_, leads, err := store.Lead(t.Context(), "one")
	require.NoError(t, err)
	require.True(t, leads)
	texts := must.Get(locale.Load(""))(t)
	guard := must.Get(limits.New(c, store))(t)
	graph := []byte(`{"1": {"class_type": "Text", "inputs": {"text": "x", "steps": 4, "seed": 1, "cfg": 7.5, "sampler_name": "euler", "note": ""}, "_meta": {"title": "prompt"}}}`)
	command := must.Get(workflow.NewCommand("generate", workflow.Spec{
		Inputs:    map[workflow.Role]string{workflow.Steps: "1.steps", workflow.Seed: "1.seed"},
		Arguments: map[string]workflow.ArgumentSpec{"note": {Input: "1.note", About: map[string]string{"en": "a note"}}},
	}, graph))(t)
	inpaint := must.Get(workflow.NewCommand("inpaint", workflow.Spec{}, []byte(`{"1": {"class_type": "LoadImage", "inputs": {"image": "x.png"}},
		"2": {"class_type": "LoadImageMask", "inputs": {"image": "m.png", "channel": "red"}}}`)))(t)
	commands := map[string]*workflow.Command{"generate": command, "inpaint": inpaint}
	p := &chats{said: map[string][]string{}, fail: map[string]error{}, menus: map[string]string{}, files: map[string]string{}}
	find := func(string) platform.Platform { return p }
	out := outbox.New(outbox.Options{})
	runner := request.NewRunner(request.Options{
		Store: store, Hub: client, Outbox: out, Texts: texts, Platform: find, Patience: time.Millisecond, Links: "https://files.example",
		Command: func(name string) *workflow.Command { return commands[name] },
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &rig{t: t, ctx: ctx, p: p, store: store, away: away, fails: fails, commands: commands, talk: New(Options{
		Store: store, Hub: client, Outbox: out, Runner: runner, Guard: guard, Texts: texts, Platform: find,
		Commands: []*workflow.Command{command, inpaint}, Default: "generate",
		Logger: slog.New(slog.DiscardHandler),
	})}
	t.Cleanup(func() {
		cancel()
		runner.Wait()
		r.talk.Wait()
		out.Close()
		client.Close()
		hub.Close()
		require.NoError(t, store.Close())
	})
	return r
}

// event handles what somebody does; change may alter it.
func (r *rig) event(user, chat string, kind platform.Kind, message, text string) {
	r.t.Helper()
	r.last++
	e := platform.Event{
		ID: strconv.Itoa(r.last), Platform: "telegram", Kind: kind, User: platform.User{ID: user, Language: "en"},
		Chat: platform.Chat{ID: chat, Group: chat[0] == '-'}, Message: platform.Message{ID: message, Text: text},
	}
	require.NoError(r.t, r.talk.Handle(r.ctx, e))
}

// pressed handles a press of what a button under a message may say, and returns the id of what
// that may ask for.
func (r *rig) pressed(user, chat, message, data string) string {
	r.t.Helper()
	r.last++
	e := platform.Event{
		ID: "press" + strconv.Itoa(r.last), Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: data, User: platform.User{ID: user, Language: "en"},
		Chat: platform.Chat{ID: chat, Group: chat[0] == '-'}, Message: platform.Message{ID: message},
	}
	require.NoError(r.t, r.talk.Handle(r.ctx, e))
	return request.IDOf(e.Key())
}

// record is a request as it is stored.
func (r *rig) record(id string) request.Record {
	r.t.Helper()
	return must.Get(r.talk.o.Runner.Load(r.ctx, id))(r.t)
}

// active are the requests that a user waits for, the oldest first.
func (r *rig) active(user string) (list []request.Record) {
	r.t.Helper()
	for _, id := range must.Get(r.store.Requests.ActiveOf(r.ctx, "telegram:"+user))(r.t) {
		list = append(list, r.record(id))
	}
	return list
}

// prompts returns what a user waits for, the oldest first, without what is being
// stopped.
func (r *rig) prompts(user string) (list []string) {
	r.t.Helper()
	for _, rec := range r.active(user) {
		if !rec.Cancel && rec.Phase != request.Over {
			list = append(list, rec.Args.Prompt)
		}
	}
	return list
}

// options returns the options that the talk has now.
func (r *rig) options() Options {
	o, c := r.talk.o, r.talk.commands
	o.Commands, o.Default, o.Edit, o.Upscale, o.Vary = c.list, c.plain, c.edit, c.upscale, c.vary
	return o
}

// with begins again with other options.
func (r *rig) with(change func(o *Options)) {
	o := r.options()
	change(&o)
	r.talk = New(o)
}
