package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/stage"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

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
