package request

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// feed gives a message of a run to its progress.
func feed(t *testing.T, p *progress, kind, data string) {
	t.Helper()
	m, ok := comfyui.ParseMessage([]byte(`{"type": "` + kind + `", "data": ` + data + `}`))
	require.True(t, ok)
	p.note(hubapi.Happening{Message: m})
}

// A run is measured, and the next one of its kind is shown by that.
func TestProgressByTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A loader of 1 s, a sampler of 8 s, and a decoder of 1 s.
		first := newProgress(3)
		feed(t, first, "execution_start", "{}")
		for _, step := range []struct {
			node    string
			seconds int
		}{{`"1"`, 1}, {`"2"`, 8}, {`"3"`, 1}, {"null", 0}} {
			feed(t, first, "executing", `{"node": `+step.node+`}`)
			time.Sleep(time.Duration(step.seconds) * time.Second)
		}
		took, whole := first.times(10 * time.Second)
		require.True(t, whole)
		require.Equal(t, pace{"1": 1, "2": 8, "3": 1}, took)

		p := newProgress(3)
		p.known, _ = pace{}.with(took, func(string) bool { return true })
		feed(t, p, "execution_start", "{}")
		feed(t, p, "executing", `{"node": "1"}`)
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, 5, p.percent(), "a node that says nothing counts by its time")
		time.Sleep(time.Minute)
		require.Equal(t, 9, p.percent())
		feed(t, p, "executing", `{"node": "2"}`)
		feed(t, p, "progress", `{"node": "2", "value": 10, "max": 20}`)
		require.Equal(t, 50, p.percent())
		feed(t, p, "progress", `{"node": "2", "value": 5, "max": 20}`)
		require.Equal(t, 50, p.percent(), "it never goes back")
		feed(t, p, "executing", `{"node": "3"}`)
		require.Equal(t, 90, p.percent())

		// With the model loaded already, nothing of that is left to do.
		feed(t, p, "execution_start", "{}")
		feed(t, p, "execution_cached", `{"nodes": ["1"]}`)
		feed(t, p, "executing", `{"node": "2"}`)
		feed(t, p, "progress", `{"node": "2", "value": 10, "max": 20}`)
		require.Equal(t, 44, p.percent())
		_, whole = p.times(10 * time.Second)
		require.False(t, whole, "messages are missing")
	})
}

func TestPace(t *testing.T) {
	t.Parallel()
	all := func(string) bool { return true }
	known, changed := pace{"1": 4, "old": 9}.with(pace{"1": 8, "2": 1, "bad": math.NaN()}, func(node string) bool { return node != "old" })
	require.True(t, changed)
	require.Equal(t, pace{"1": 5, "2": 1}, known)
	_, changed = known.with(pace{"1": 5.1, "2": 1}, all)
	require.False(t, changed, "no reason to store it")
	many := pace{}
	for i := range 2 * maxPace {
		many[string(rune(i+0x4e00))] = 1
	}
	known, _ = pace{}.with(many, all)
	require.Len(t, known, maxPace)
	require.InDelta(t, 1, pace{}.mean(), 0)
}

// What was learned is there for the next bridge.
func TestPaceIsStored(t *testing.T) {
	t.Parallel()
	store, err := state.Open(t.Context(), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	c, err := workflow.NewCommand("generate", workflow.Spec{}, []byte(`{"1": {"class_type": "KSampler", "inputs": {}}}`))
	require.NoError(t, err)
	o := Options{Store: store, Command: func(string) *workflow.Command { return c }}
	NewRunner(o).paces.learn(t.Context(), "generate", pace{"1": 4, "no node": 4})
	r := NewRunner(o)
	require.Equal(t, pace{"1": 4}, r.paces.of(t.Context(), "generate"))
	require.Empty(t, r.paces.of(t.Context(), "edit"))
}

// People read what is done, not which node does it, and how long it still takes.
func TestRunningText(t *testing.T) {
	t.Parallel()
	texts, err := locale.Load("")
	require.NoError(t, err)
	c, err := workflow.NewCommand("generate", workflow.Spec{}, []byte(`{"1": {"class_type": "KSampler", "inputs": {}, "_meta": {"title": "My node"}}, "2": {"class_type": "SaveImage", "inputs": {}}}`))
	require.NoError(t, err)
	for language, want := range map[string]string{"en": "Painting 5/20 · about 30 s left", "ru": "Рисую 5/20 · ещё примерно 30 с"} {
		j := newJob(NewRunner(Options{Texts: texts, Command: func(string) *workflow.Command { return c }}), Record{}, 0, nil, 2)
		j.rec.Language = language
		feed(t, j.prog, "execution_start", "{}")
		feed(t, j.prog, "executing", `{"node": "1"}`)
		feed(t, j.prog, "progress", `{"value": 5, "max": 20}`)
		j.prog.expect(30*time.Second, time.Now())
		require.Contains(t, j.words.runningText(), want)
		j.prog.expect(0, time.Now())
		require.NotContains(t, j.words.runningText(), "30")
	}
}

// A node in a loop is not done when its first iteration is.
func TestProgressOfLoops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProgress(2)
		p.known = pace{"194:45": 9, "9": 1}
		feed(t, p, "execution_start", "{}")
		for i, want := range []int{0, 30, 60, 81} {
			feed(t, p, "executing", `{"node": "5.0.0.`+string(rune('0'+i))+`_194:45", "display_node": "194:45"}`)
			require.Equal(t, want, p.percent())
			time.Sleep(3 * time.Second)
		}
	})
}
