package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/stage"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

// load sets the size of TestLoad. COMFYHUB_BOT_LOAD=full is the load that the
// bridge is made for. COMFYHUB_BOT_LOAD=real also keeps Telegram's own limits,
// which takes minutes.
func load() (chats, requests int, scale float64) {
	switch os.Getenv("COMFYHUB_BOT_LOAD") {
	case "real":
		return 200, 5, 1
	case "full":
		return 200, 5, 10
	}
	return 30, 4, 10
}

// trouble returns the faults on Telegram's side: 2 % floods, 2 % errors, 1 % of
// the connections cut, half of those after the call took effect.
func trouble() func(string) fakebot.Fault {
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(4, 2))
	return func(string) fakebot.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch n := dice.IntN(1000); {
		case n < 20:
			return fakebot.Flood
		case n < 40:
			return fakebot.Broken
		case n < 45:
			return fakebot.CutBefore
		case n < 50:
			return fakebot.CutAfter
		}
		return fakebot.None
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	chats, requests, scale := load()
	r := newRig(t, func(o *stage.Options) {
		o.Fake = fakebot.Options{Scale: scale, Enforce: true, Fault: trouble()}
		o.Config = strings.ReplaceAll(config, "rate: 10", fmt.Sprintf("rate: %g", scale))
		o.AgentFlags = []string{"--time-scale", "0.1"}
		o.Instances = 4
	})
	begin := time.Now()
	people := make([]*fakebot.Person, chats)
	asked := make([][]int, chats)
	for n := range people {
		people[n] = r.Fake.Person(int64(1000+n), "en")
		if n%10 == 9 {
			// In a group, which has its own limits.
			people[n] = people[n].In(int64(-1000 - n))
		}
	}
	for k := range requests {
		for n, p := range people {
			m, _ := p.Say("/work --seed " + strconv.Itoa(1+n*requests+k))
			asked[n] = append(asked[n], m)
		}
	}
	over := func() int {
		done := 0
		for n, p := range people {
			list := p.Sees()
			for _, m := range asked[n] {
				done += min(1, fakebot.Ends(list, m))
			}
		}
		return done
	}
	all := chats * requests
	await := func(share int) {
		require.Eventually(t, func() bool { return over() >= all*share/100 }, 10*time.Minute, 100*time.Millisecond, "%d of %d", over(), all)
	}
	await(20)
	early, _ := r.Bridge.Memory()
	r.Hub.Kill()
	require.NoError(t, r.StartHub(r.ctx))
	await(45)
	r.Bridge.Kill()
	require.NoError(t, r.RestartBridge(r.ctx))
	await(80)
	late, _ := r.Bridge.Memory()
	await(100)

	doubt, pictures := 0, 0
	for n, p := range people {
		list := p.Sees()
		for k, m := range asked[n] {
			require.Equal(t, 1, fakebot.Ends(list, m), "each request ends once: %s", fakebot.Texts(p.All()))
			got := fakebot.Filter(list, fakebot.Answering(m, fakebot.IsPicture))
			require.LessOrEqual(t, len(got), 1, "nobody gets a picture twice: %s", fakebot.Texts(p.All()))
			pictures += len(got)
			if len(got) == 0 {
				doubt++
				t.Logf("in doubt: %s", fakebot.Texts(fakebot.Filter(p.All(), fakebot.Answering(m, func(fakebot.Message) bool { return true }))))
				continue
			}
			require.Equal(t, strconv.Itoa(1+n*requests+k), strings.Fields(got[0].Text)[1], "everybody gets their own: %s", got[0].Text)
		}
		require.True(t, inOrder(p.All(), asked[n]), "the first answers come in the order of the questions: %s", fakebot.Texts(p.All()))
	}
	tooFast, worst := r.Fake.TooFast()
	t.Logf("%d requests of %d chats in %v: %d pictures, %d in doubt and said so; %d calls too fast, fullest windows %+v; memory %d and %d MB; calls %v",
		all, chats, time.Since(begin).Round(time.Second), pictures, doubt, tooFast, worst, early>>20, late>>20, r.Fake.Calls())
	require.Zero(t, tooFast, "%+v", worst)
	// The faults leave some requests in doubt, and the kill at most one in each chat.
	require.LessOrEqual(t, doubt, 5+all/50+chats)
	require.Less(t, late, min(150<<20, early+64<<20), "memory stays flat")
}

// inOrder reports whether the first answers to the messages come in the order of
// the messages.
func inOrder(list []fakebot.Message, asked []int) bool {
	last := 0
	for _, m := range asked {
		first, ok := 0, false
		for _, said := range list {
			if said.FromBot && said.ReplyTo == m {
				first, ok = said.ID, true
				break
			}
		}
		if !ok || first < last {
			return false
		}
		last = first
	}
	return true
}

// A large file passes through without being held in memory.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *stage.Options) {
		o.Config += "  large: {workflow: large.json, inputs: {seed: 1.color, count: \"-\", size: \"-\"}, max_seed: 16777215}\n"
	})
	ada := r.Fake.Person(11, "en")
	asked, _ := ada.Say("/large")
	large := r.waitFor(ada, "a large file", fakebot.Answering(asked, func(m fakebot.Message) bool { return m.FromBot && m.Kind == "document" }))
	require.Greater(t, large.File.Size, int64(40<<20))
	memory, _ := r.Bridge.Memory()
	t.Logf("the bridge has %d MB after %d MB went through", memory>>20, large.File.Size>>20)
	require.Less(t, memory, int64(80<<20))
}

const secret = "a-secret_of-sufficient-length"

func TestWebhookDelivery(t *testing.T) { //nolint:tparallel // one thing after the other
	t.Parallel()
	r := newRig(t, func(o *stage.Options) {
		o.Env = []string{"HOOK_SECRET=" + secret}
		// BRIDGE_URL stands for the address, which is known only once the bridge has one.
		o.Config = strings.ReplaceAll(config, "telegram: {rate: 10}",
			"telegram: {rate: 10, webhook: BRIDGE_URL/telegram/webhook, webhook_secret: {env: HOOK_SECRET}}\ndelivery: edit")
	})
	ada := r.Fake.Person(3, "en")
	asked, _ := ada.Say("/work")
	r.waitFor(ada, "the picture in the place of the status", fakebot.Answering(asked, fakebot.IsPicture))
	require.Len(t, fakebot.Filter(ada.All(), func(m fakebot.Message) bool { return m.FromBot }), 1)
	require.Zero(t, r.Fake.Calls()["getUpdates"])

	call := func(secret, body string) int {
		request := must.Get(http.NewRequest(http.MethodPost, r.BridgeURL+"/telegram/webhook", strings.NewReader(body)))(t)
		if secret != "" {
			request.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
		}
		response := must.Get(http.DefaultClient.Do(request))(t)
		response.Body.Close()
		return response.StatusCode
	}
	byHand := ada.Mutter("/work")
	update := fmt.Sprintf(`{"update_id": 9999, "message": {"message_id": %d, "date": 1, "chat": {"id": 3, "type": "private"}, "from": {"id": 3}, "text": "/work"}}`, byHand)
	t.Run("webhook with a wrong secret", func(t *testing.T) {
		for _, wrong := range []string{"", "wrong", secret[1:], secret + "x", strings.ToUpper(secret)} {
			require.Equal(t, http.StatusUnauthorized, call(wrong, update))
		}
		require.Equal(t, http.StatusBadRequest, call(secret, `{"update_id": `))
		require.Equal(t, http.StatusBadRequest, call(secret, `{"message": {"text": "`+strings.Repeat("x", 1<<20)+`"}}`), "no update is so large")
	})
	// Telegram sends one update twice.
	for range 2 {
		require.Equal(t, http.StatusOK, call(secret, update))
	}
	r.waitFor(ada, "its picture", fakebot.Answering(byHand, fakebot.IsPicture))
	last, _ := ada.Say("/work")
	r.waitFor(ada, "another", fakebot.Answering(last, fakebot.IsPicture))
	require.Len(t, fakebot.Filter(ada.All(), fakebot.IsPicture), 3, "one update is one request")
}

// patience bounds every wait. It is long because a machine that runs other tests is slow.
const patience = 4 * time.Minute

func TestMain(m *testing.M) { programstest.Main(m) }

// config is the bot.yaml of the tests.
const config = `
telegram: {rate: 10}
limits:
  waiting: 6
  messages_per_10s: 60
  admins: ["telegram:1"]
  block_users: ["telegram:666"]
  words: [forbidden]
default_command: generate
commands:
  generate: {workflow: generate.json, about: {en: "a picture from words", ru: "картинка"}}
  edit: {workflow: edit.json, max_count: 1}
  inpaint: {workflow: inpaint.json, max_count: 1}
  upscale: {workflow: upscale.json, upscales: true}
  poster: {workflow: poster.json, inputs: {seed: Colour.color}, max_seed: 16777215, max_count: 10}
  work: {workflow: work.json, inputs: {seed: Work.nonce}}
  slow: {workflow: slow.json, inputs: {seed: Work.nonce}}
  endless: {workflow: endless.json, inputs: {seed: Work.nonce}}
  broken: {workflow: broken.json, inputs: {seed: Work.nonce}}
  missing: {workflow: missing.json, inputs: {seed: Work.nonce, size: "-", count: "-"}}
`

type rig struct {
	t *testing.T
	*stage.Stage
	ctx context.Context
}

// newRig sets everything up. change may alter the options.
func newRig(t *testing.T, change ...func(*stage.Options)) *rig {
	t.Helper()
	set := programstest.Built(t)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	o := stage.Options{
		Set: set, Dir: t.TempDir(), Config: config, Workflows: []string{"../../examples/bot", "../world/testdata"},
		AgentFlags: []string{"--time-scale", "0.2"}, Fake: fakebot.Options{Scale: 10, Enforce: true},
	}
	for _, c := range change {
		c(&o)
	}
	s, err := stage.Open(ctx, o)
	t.Cleanup(func() {
		s.Close()
		if t.Failed() {
			t.Log(s.Tails())
		}
		cancel()
	})
	require.NoError(t, err)
	return &rig{t: t, Stage: s, ctx: ctx}
}

// wait waits until the messages that a person sees meet a condition.
func (r *rig) wait(p *fakebot.Person, what string, until func([]fakebot.Message) bool) []fakebot.Message {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	list, err := p.Wait(ctx, until)
	require.NoError(r.t, err, "%s; the chat holds: %s", what, fakebot.Texts(list))
	return list
}

// waitFor waits for one message of the bot that fits, and returns it.
func (r *rig) waitFor(p *fakebot.Person, what string, fits func(fakebot.Message) bool) fakebot.Message {
	r.t.Helper()
	ofBot := func(m fakebot.Message) bool { return m.FromBot && fits(m) }
	list := r.wait(p, what, func(list []fakebot.Message) bool {
		_, ok := fakebot.Find(list, ofBot)
		return ok
	})
	m, _ := fakebot.Find(list, ofBot)
	return m
}
