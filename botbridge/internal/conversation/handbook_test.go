package conversation

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

func TestHelpOfACommand(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	last := func(text string) string {
		r.event("5", "5", platform.Said, "m", text)
		said := r.p.in("5")
		return said[len(said)-1]
	}
	help := last("/help generate")
	for _, want := range []string{
		"--steps: from 1 to 60", "--seed: a whole number", "--cfg: from 0 to 100 (default 7.5)", "--note: words - a note",
		"--sampler: euler, heun, dpmpp_2m, a, b, c and 2 more: /help generate sampler (default euler)",
	} {
		require.Contains(t, help, want)
	}
	require.NotContains(t, help, "--strength")
	require.Contains(t, last("/help /generate --sampler"), "\nd\ne")
	require.Contains(t, last("/help generate nothing"), "--cfg")
	require.Contains(t, last("/help nothing"), "I make pictures")
	require.Contains(t, last("/help inpaint"), "the second picture of an album")
}

// What the fleet has said counts while the hub is away; what it has not is not guessed.
func TestArgumentsWhileTheHubIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{Words: []string{"forbidden"}})
	ask := func(text string) string {
		before := len(r.p.in("5"))
		r.event("5", "5", platform.Said, "m"+strconv.Itoa(before), text)
		return strings.Join(r.p.in("5")[before:], "\n")
	}
	r.away.Store(true)
	require.Contains(t, ask("/generate a fox --cfg 4"), "can't check right now what --cfg can be")
	require.Empty(t, r.prompts("5"))
	r.away.Store(false)
	r.talk.handbook.catalogs.failed["Text"] = r.talk.handbook.catalogs.failed["Text"].Add(-catalogPause)
	require.NotContains(t, ask("/generate a fox --cfg 4 --sampler Heun"), "--cfg")
	r.away.Store(true)
	r.talk.handbook.catalogs.asked["Text"] = r.talk.handbook.catalogs.asked["Text"].Add(-catalogKeep)
	require.Contains(t, ask("/generate a fox --cfg 400"), "--cfg can be from 0 to 100, not 400.")
	require.Contains(t, ask("/generate a fox --sampler huen"), "Did you mean heun?")
	require.Contains(t, ask("/generate a fox --note forbidden"), "I won't make that", "these words are looked at, too")
	require.Equal(t, []string{"a fox"}, r.prompts("5"))

	// Again is with the same values.
	ids, err := r.store.Requests.ActiveOf(r.ctx, "telegram:5")
	require.NoError(t, err)
	require.NoError(t, r.talk.Handle(r.ctx, platform.Event{
		ID: "press", Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: request.ButtonData(request.VerbAgain, ids[0]),
		User: platform.User{ID: "5"}, Chat: platform.Chat{ID: "5"}, Message: platform.Message{ID: "b1"},
	}))
	again, err := r.talk.o.Runner.Load(r.ctx, request.IDOf("telegram/press"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"cfg": "4", "sampler": "heun"}, again.Args.Set)
}

// A list of commands that is too long for a message comes as several.
func TestLongHelp(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	for n := range 40 {
		c, err := workflow.NewCommand("command"+strconv.Itoa(n), workflow.Spec{About: map[string]string{"en": strings.Repeat("x", 250)}}, []byte(`{"1": {"class_type": "A", "inputs": {}}}`))
		require.NoError(t, err)
		r.talk.commands.list = append(r.talk.commands.list, c)
	}
	r.event("5", "5", platform.Said, "m", "/help")
	said := r.p.in("5")
	require.Greater(t, len(said), 2)
	for _, part := range said {
		require.LessOrEqual(t, locale.Units(part), 4096)
	}
	require.Contains(t, strings.Join(said, "\n"), "/command39 - ")
}
