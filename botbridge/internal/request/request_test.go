package request

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestShowable(t *testing.T) {
	t.Parallel()
	encode := func(img image.Image) []byte {
		var b bytes.Buffer
		require.NoError(t, png.Encode(&b, img))
		return b.Bytes()
	}
	opaque := image.NewRGBA(image.Rect(0, 0, 40, 40))
	for i := range opaque.Pix {
		opaque.Pix[i] = 255
	}
	clear := image.NewNRGBA(image.Rect(0, 0, 40, 40))
	clear.Set(3, 3, color.NRGBA{R: 9, A: 100})
	narrow := image.NewGray(image.Rect(0, 0, 10, 210))
	long := image.NewGray(image.Rect(0, 0, 9000, 1001))
	animation := append(encode(opaque), "acTL"...)
	strict := platform.Limits{Recompresses: true, Sides: 10_000, Shape: 20}
	for name, one := range map[string]struct {
		head         []byte
		lossy, whole bool // on platforms that recompress, and on others without limits
	}{
		"opaque":      {encode(opaque), true, true},
		"header only": {encode(opaque)[:60], true, true},
		"transparent": {encode(clear), false, true},
		"animated":    {animation, false, true},
		"narrow":      {encode(narrow), false, true},
		"long":        {encode(long), false, true},
		"cut":         {[]byte("GIF89a"), false, false},
		"empty":       {nil, false, false},
	} {
		require.Equal(t, one.lossy, showable(one.head, strict), name)
		require.Equal(t, one.whole, showable(one.head, platform.Limits{}), name)
	}
}

func TestMediaOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]platform.Media{
		"a.PNG": platform.Photo, "a.mp4": platform.Video, "a.gif": platform.Animation, "a.flac": platform.Audio,
		"a.glb": platform.Document, "a": platform.Document, "..": platform.Document, "a.webm": platform.Document,
	} {
		require.Equal(t, want, mediaOf(name, telegramLike{}.Limits()), name)
	}
	require.Equal(t, platform.Video, mediaOf("a.webm", platform.Limits{}))
}

func TestProgress(t *testing.T) {
	t.Parallel()
	p := newProgress(4)
	p.position = 3
	feed := func(kind, data string) bool {
		m, ok := comfyui.ParseMessage([]byte(`{"type": "` + kind + `", "data": ` + data + `}`))
		require.True(t, ok)
		return p.note(hubapi.Happening{Message: m})
	}
	require.False(t, feed("status", "{}"))
	require.True(t, feed("execution_start", "{}"))
	require.Equal(t, -1, p.position)
	require.True(t, feed("execution_cached", `{"nodes": ["1"]}`))
	require.True(t, feed("executing", `{"node": "2"}`))
	require.Zero(t, p.percent(), "what is cached takes no time")
	require.True(t, feed("progress", `{"node": "2", "value": 1, "max": 2}`))
	require.Equal(t, 17, p.percent())
	require.True(t, feed("executing", `{"node": "3"}`))
	require.Equal(t, 33, p.percent())
	require.True(t, feed("executing", `{"node": "4"}`))
	require.True(t, feed("progress", `{"value": 5, "max": 0}`))
	require.True(t, feed("executing", `{"node": null}`))
	require.LessOrEqual(t, p.percent(), 99)
	require.True(t, feed("execution_start", "{}"), "a run that was lost starts again")
	require.Zero(t, p.percent())
	require.Equal(t, "▰▰▰▰▰▰▱▱▱▱▱▱", bar(50))
	require.Equal(t, strings.Repeat("▱", 12), bar(-5))
	require.Equal(t, strings.Repeat("▰", 12), bar(500))
}

func TestIDs(t *testing.T) {
	t.Parallel()
	const known = "60bb4e7d-f1c3-5b4c-84ac-ce9f7e48ab65"
	require.Equal(t, known, IDOf("telegram/5"), "the same message is the same request, also to the next version")
	require.NotEqual(t, IDOf("telegram/5"), IDOf("webchat/5"))
	one, two := NewRecord("x"), NewRecord("x")
	require.NotEqual(t, one.Prompt, two.Prompt)
	require.NotEqual(t, one.Client, two.Client)
	require.LessOrEqual(t, len(ButtonData(VerbVary, IDOf("x"))), 64)
}

func TestLastWords(t *testing.T) {
	t.Parallel()
	texts := must.Get(locale.Load(""))(t)
	say := func(rec Record) platform.Post {
		o := Options{Texts: texts, Command: func(string) *workflow.Command { return nil }}
		rec.Phase, rec.ID, rec.Language = Ended, "id", "en"
		j := newJob(NewRunner(o), rec, 0, nil, 0)
		return j.words.endPost()
	}
	big := Record{Outcome: Done, Outputs: []Output{{State: TooBig, Size: 61_500_000}}}
	require.Contains(t, say(big).Text, "62 MB it's too large")
	big.Outputs[0].Link = "https://files.example/x"
	require.Contains(t, say(big).Text, "https://files.example/x")
	doubt := say(Record{Outcome: Done, Outputs: []Output{{State: Unsure}}})
	require.Contains(t, doubt.Text, "the connection dropped")
	require.Equal(t, ButtonData(VerbResend, "id"), doubt.Buttons[0][0].Data)
	require.Contains(t, say(Record{Outcome: Done}).Text, "nothing to show")
	require.Contains(t, say(Record{Outcome: Done, Outputs: []Output{{State: Arrived}, {State: Lost}}}).Text, "✓ 1 ready in")
	require.Contains(t, say(Record{Outcome: Refused, Reason: strings.Repeat("x", 5000)}).Text, "…")
	require.Equal(t, "Stopped.", say(Record{Outcome: Cancelled}).Text)
}

// What an output is sent as depends on its size and on what is in it.
func TestInspect(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, 40, 40))))
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(strings.TrimSuffix(path.Base(r.URL.Query().Get("filename")), path.Ext(r.URL.Query().Get("filename"))))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		head := append(b.Bytes(), make([]byte, 2*headSize)...) // more is not asked for
		if path.Ext(r.URL.Query().Get("filename")) == ".mp4" {
			head = box("moov", track(640, 368, false))
		}
		_, _ = w.Write(head[:min(size, len(head))])
	}))
	defer hub.Close()
	client := must.Get(hubapi.New(hub.URL, hubapi.Options{}))(t)
	defer client.Close()
	for name, want := range map[string]Output{
		"1000.png":     {Media: platform.Photo},
		"10485761.png": {Media: platform.Document},
		"52428801.png": {Media: platform.Document, State: TooBig},
		"52428800.mp4": {Media: platform.Video},
		"52428801.mp4": {Media: platform.Video, State: TooBig},
		"1000.webm":    {Media: platform.Document},
		"1000.gif":     {Media: platform.Animation},
		"1000.mp3":     {Media: platform.Audio},
	} {
		j := newJob(NewRunner(Options{Hub: client}), Record{}, 0, telegramLike{}, 0)
		out := Output{Ref: comfyui.FileRef{Filename: name, Type: "output"}}
		require.NoError(t, j.files.inspect(t.Context(), &out), name)
		require.Equal(t, want.Media, out.Media, name)
		require.Equal(t, want.State, out.State, name)
		require.Equal(t, want.Media == platform.Video && want.State == Unsent, out.Width == 640 && out.Height == 368, name)
	}
	j := newJob(NewRunner(Options{Hub: client}), Record{}, 0, telegramLike{}, 0)
	require.ErrorIs(t, j.files.inspect(t.Context(), &Output{Ref: comfyui.FileRef{Filename: "gone.png"}}), hubapi.ErrNotFound)
}

// telegramLike has Telegram's limits and does nothing.
type telegramLike struct{ platform.Platform }

func (telegramLike) Limits() platform.Limits {
	return platform.Limits{Photo: 10 << 20, File: 50 << 20, Recompresses: true, Sides: 10_000, Shape: 20, Videos: []string{".mp4"}}
}

func TestRefusedInWords(t *testing.T) {
	t.Parallel()
	texts := must.Get(locale.Load(""))(t)
	j := newJob(NewRunner(Options{Texts: texts}), Record{Language: "en"}, 0, nil, 0)
	for want, refused := range map[string]hubapi.RefusedError{
		"not this model now":                       {Status: 403, Message: "not this model", Details: "now"},
		"Try a smaller picture":                    {Status: 413},
		"without saying why (error 418)":           {Status: 418},
		"Value not in list K (node 5): bad: steps": {Status: 400, Message: "Value not in list", Details: "K (node 5): bad: steps"},
	} {
		require.Contains(t, j.words.whyRefused(&refused), want)
	}
}

func TestPlaceText(t *testing.T) {
	t.Parallel()
	texts := must.Get(locale.Load(""))(t)
	require.Equal(t, "⏳ First in the queue.", PlaceText(texts, "en", 0, 0))
	require.Equal(t, "⏳ Number 2 in the queue, about 4 s.", PlaceText(texts, "en", 1, 4*time.Second))
	require.Equal(t, "⏳ Вы 3-й в очереди, примерно 2 мин.", PlaceText(texts, "ru", 2, 2*time.Minute))
}

func TestWhy(t *testing.T) {
	t.Parallel()
	texts := must.Get(locale.Load(""))(t)
	able := hubapi.Candidate{Name: "a", State: "busy", CanRun: true, Why: "it runs another job"}
	unable := hubapi.Candidate{Name: "b", State: "idle", Lacks: []string{"node class X", "model y", "model z"}}
	sick := hubapi.Candidate{Name: "c", State: "sick", Why: "it takes no jobs now"}
	gone := hubapi.Candidate{Name: "d", State: "offline"}
	for _, c := range []struct {
		fleet []hubapi.Candidate
		want  string
		stuck bool
	}{
		{nil, "No image server is online", true},
		{[]hubapi.Candidate{gone}, "No image server is online", true},
		{[]hubapi.Candidate{unable, gone}, "servers online (1) can make this right now. I'll keep your request in case one comes along that can.\nWhat's missing: node class X, model y, model z", true},
		{[]hubapi.Candidate{sick}, "servers online (1) can make this right now", true},
		{[]hubapi.Candidate{able, unable, sick, gone}, "1 of 3 image servers can make it", false},
	} {
		text, stuck := Why(texts, "en", hubapi.Explanation{Instances: c.fleet})
		require.Contains(t, text, c.want)
		require.Equal(t, c.stuck, stuck)
		text, _ = Why(texts, "ru", hubapi.Explanation{Instances: c.fleet})
		require.NotContains(t, text, "achine")
		require.NotContains(t, text, "{")
	}
}

func TestOneWordAnOutage(t *testing.T) {
	t.Parallel()
	var o outage
	require.True(t, o.tell("telegram/1"))
	require.False(t, o.tell("telegram/1"), "a chat is told once")
	require.True(t, o.tell("telegram/2"))
	o.over()
	require.True(t, o.tell("telegram/1"), "the next outage is another")
}

// feed gives a message of a run to its progress.
func feed(t *testing.T, p *progress, kind, data string) {
	t.Helper()
	m, ok := comfyui.ParseMessage([]byte(`{"type": "` + kind + `", "data": ` + data + `}`))
	require.True(t, ok)
	p.note(hubapi.Happening{Message: m})
}

// A run is measured, and the next one of its kind is shown by that.
func TestProgressByTime(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
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
	store := must.Get(state.Open(t.Context(), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{}))(t)
	t.Cleanup(func() { _ = store.Close() })
	c := must.Get(workflow.NewCommand("generate", workflow.Spec{}, []byte(`{"1": {"class_type": "KSampler", "inputs": {}}}`)))(t)
	o := Options{Store: store, Command: func(string) *workflow.Command { return c }}
	NewRunner(o).paces.learn(t.Context(), "generate", pace{"1": 4, "no node": 4})
	r := NewRunner(o)
	require.Equal(t, pace{"1": 4}, r.paces.of(t.Context(), "generate"))
	require.Empty(t, r.paces.of(t.Context(), "edit"))
}

// People read what is done, not which node does it, and how long it still takes.
func TestRunningText(t *testing.T) {
	t.Parallel()
	texts := must.Get(locale.Load(""))(t)
	c := must.Get(workflow.NewCommand("generate", workflow.Spec{}, []byte(`{"1": {"class_type": "KSampler", "inputs": {}, "_meta": {"title": "My node"}}, "2": {"class_type": "SaveImage", "inputs": {}}}`)))(t)
	for language, want := range map[string]string{"en": "Painting · about 30 s left", "ru": "Рисую · ещё примерно 30 с"} {
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
	beside.Bubble(t, func(t *testing.T) {
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
