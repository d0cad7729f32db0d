package discord

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// patience bounds every wait. A machine that runs other tests is slow.
const patience = time.Minute

const (
	guild   = "900000000000000001"
	channel = "900000000000000002"
	ada     = "900000000000000003"
	bob     = "900000000000000004"
)

// notes is a memory that lives as long as a test.
type notes struct {
	mu     sync.Mutex
	values map[string][]byte
	away   bool
}

func (n *notes) Get(_ context.Context, name string, into any) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away {
		return false, errors.New("away")
	}
	value, ok := n.values[name]
	if !ok {
		return false, nil
	}
	return true, json.Unmarshal(value, into)
}

func (n *notes) Put(_ context.Context, name string, value any, _ time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away {
		return errors.New("away")
	}
	if value == nil {
		delete(n.values, name)
		return nil
	}
	text, err := json.Marshal(value)
	n.values[name] = text
	return err
}

// rig is the platform, connected to the fake.
type rig struct {
	t      *testing.T
	fake   *fakediscord.Fake
	d      *Discord
	memory *notes
	url    string
	o      Options
	ctx    context.Context
	stop   func()

	mu     sync.Mutex
	events []platform.Event
	refuse error // what admit returns
	came   chan struct{}
}

func commands() []Command {
	say := func(en, ru string) map[string]string { return map[string]string{"": en, "ru": ru} }
	return []Command{
		{Name: "generate", About: say("a picture from words", "картинка по описанию"), Arguments: []platform.Argument{
			{Name: "size", Flag: "--size", About: say("size", "размер"), Choices: []string{"512x512", "768x512"}},
			{Name: "prompt", Required: true, About: say("what you want to see", "что вы хотите увидеть")},
			{Name: "negative", Flag: "--no", About: say("what not", "чего не надо")},
			{Name: "count", Flag: "--count", Kind: platform.Whole, Min: 1, Max: 4, About: say("how many", "сколько")},
			{Name: "strength", Flag: "--strength", Kind: platform.Fraction, Min: 0.01, Max: 1, About: say("how much", "насколько")},
			{Name: "image", Kind: platform.Picture, About: say("a picture", "картинка")},
			{Name: "file", Flag: "--file", Kind: platform.Switch, About: say("as a file", "файлом")},
		}},
		{Name: "help", About: say("what I can do", "что я умею"), Private: true},
	}
}

// parallelRig is newRig for a test that runs beside others.
func parallelRig(t *testing.T, fo fakediscord.Options, change ...func(*Options)) *rig {
	t.Helper()
	t.Parallel()
	return newRig(t, fo, change...)
}

func newRig(t *testing.T, fo fakediscord.Options, change ...func(*Options)) *rig {
	t.Helper()
	if fo.AckWithin == 0 {
		fo.AckWithin = patience // a busy machine may stand still
	}
	if fo.PerFiveSeconds == 0 {
		fo.PerFiveSeconds = -1 // nobody here waits and repeats
	}
	fake := must.Get(fakediscord.New(fo))(t)
	server := httptest.NewServer(fake)
	ctx, cancel := context.WithCancel(context.Background())
	r := &rig{
		t: t, fake: fake, memory: &notes{values: map[string][]byte{}}, ctx: ctx, came: make(chan struct{}), url: server.URL,
		o: Options{
			Token: fakediscord.Token, Server: server.URL + "/api/v10", Direct: true, Commands: commands(), IdentifyEvery: time.Millisecond,
			Say: func(_, key string) string { return key },
		},
	}
	r.o.Memory = r.memory
	for _, c := range change {
		c(&r.o)
	}
	t.Cleanup(func() {
		r.stop()
		cancel()
		fake.Close()
		server.Close()
		require.Empty(t, fake.Violations(), "everything fits Discord's own document")
	})
	r.start()
	return r
}

// start starts a process, as it were, with the memory of the last one.
func (r *rig) start() {
	r.t.Helper()
	d := must.Get(New(r.o))(r.t)
	begun, continued := r.fake.Sessions()
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Listen(ctx, r.admit) }()
	r.d = d
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		d.Close()
	})
	// The connection of the last process may still look open.
	require.Eventually(r.t, func() bool { b, c := r.fake.Sessions(); return b+c > begun+continued }, patience, 1e6)
	r.connected()
}

func (r *rig) connected() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	require.NoError(r.t, r.fake.AwaitSession(ctx))
}

func (r *rig) admit(_ context.Context, e platform.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		return r.refuse
	}
	if slices.ContainsFunc(r.events, func(other platform.Event) bool { return other.Key() == e.Key() }) {
		return nil
	}
	r.events = append(r.events, e)
	close(r.came)
	r.came = make(chan struct{})
	return nil
}

// refuses makes admit return an error, or none.
func (r *rig) refuses(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = err
}

// event waits for the event of that number, from 0.
func (r *rig) event(n int) platform.Event {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		list, came := r.events, r.came
		r.mu.Unlock()
		if len(list) > n {
			return list[n]
		}
		select {
		case <-came:
		case <-deadline:
			require.FailNow(r.t, "no such event", "%d of %d", n, len(list))
		}
	}
}

// sees waits for a message of the bot.
func (r *rig) sees(p *fakediscord.Person, what string, fits func(fakediscord.Message) bool) fakediscord.Message {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	m, all, err := p.Wait(ctx, fits)
	require.NoError(r.t, err, "%s; there is %+v", what, all)
	return m
}

func saying(text string) func(fakediscord.Message) bool {
	return func(m fakediscord.Message) bool { return m.Text == text }
}
