package conversation

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestHelpOfACommand(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	last := func(text string) string {
		r.event("5", "5", platform.Said, "m", text)
		return r.heard("5")
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
	r := parallelRig(t, limits.Config{Words: []string{"forbidden"}})
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
	again := r.record(r.pressed("5", "5", "b1", request.ButtonData(request.VerbAgain, r.active("5")[0].ID)))
	require.Equal(t, map[string]string{"cfg": "4", "sampler": "heun"}, again.Args.Set)
}

// A list of commands that is too long for a message comes as several.
func TestLongHelp(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	for n := range 40 {
		c := must.Get(workflow.NewCommand("command"+strconv.Itoa(n), workflow.Spec{About: map[string]string{"en": strings.Repeat("x", 250)}}, []byte(`{"1": {"class_type": "A", "inputs": {}}}`)))(t)
		r.talk.commands.list = append(r.talk.commands.list, c)
	}
	r.event("5", "5", platform.Said, "m", "/help")
	said := r.p.in("5")
	require.Greater(t, len(said), 2)
	for _, part := range said {
		require.LessOrEqual(t, platform.Units(part), 4096)
	}
	require.Contains(t, strings.Join(said, "\n"), "/command39 - ")
}

// The form of a command has what its workflow takes, and every text is there in every
// language.
func TestDeclare(t *testing.T) {
	t.Parallel()
	texts := must.Get(locale.Load(""))(t)
	var commands []*workflow.Command
	for _, name := range []string{"generate", "edit"} {
		file := must.Get(os.ReadFile(filepath.Join("..", "..", "..", "examples", "bot", name+".json")))(t)
		c := must.Get(workflow.NewCommand(name, workflow.Spec{About: map[string]string{"en": name, "ru": "картинка"}, Models: []string{"a.safetensors"}}, file))(t)
		commands = append(commands, c)
	}
	list := Declare(texts, commands, true)
	require.Len(t, list, 2+len(Menu(true))+3)
	arguments := func(c platform.Command) map[string]platform.Argument {
		found := map[string]platform.Argument{}
		for _, a := range c.Arguments {
			require.NotContains(t, found, a.Name)
			found[a.Name] = a
		}
		return found
	}
	generate, edit := arguments(list[0]), arguments(list[1])
	require.True(t, generate["prompt"].Required)
	require.Equal(t, "--no", generate["negative"].Flag)
	require.InDelta(t, 4, generate["count"].Max, 0)
	require.Equal(t, []string{"a.safetensors"}, generate["model"].Choices)
	require.Contains(t, generate["size"].Choices, "1024x1024")
	require.Equal(t, platform.Switch, generate["enhance"].Kind)
	require.Contains(t, generate, "cfg", "an input that nobody has declared")
	require.Equal(t, platform.Picture, edit["image"].Kind)
	require.True(t, edit["image"].Required)
	require.False(t, edit["prompt"].Required)
	for _, c := range list {
		for _, a := range c.Arguments {
			for _, language := range []string{"", "ru"} {
				require.NotEmpty(t, a.About[language], "%s %s", c.Name, a.Name)
				require.NotContains(t, a.About[language], "argument_", "%s %s", c.Name, a.Name)
			}
		}
		require.NotEmpty(t, c.About["ru"])
	}
	require.True(t, list[len(list)-1].Private)
}

// Operators see the last thirty days; nobody else sees anything.
func TestStats(t *testing.T) {
	r := parallelRig(t, limits.Config{Admins: []string{"telegram:5"}})
	ask := func(user, message string) platform.Post {
		r.sent()
		r.event(user, user, platform.Said, message, "/stats")
		posts, _ := r.sent()
		require.Len(t, posts, 1)
		return posts[0]
	}
	nothing := ask("5", "m1")
	require.Contains(t, nothing.Text, "0 active requests, ")
	require.NotContains(t, nothing.Text, "In 30 days")
	require.NotContains(t, ask("6", "m2").Text, "0 requests")

	n := 0
	ended := func(command, user string, outcome request.Outcome, ago, took time.Duration) {
		n++
		rec := request.NewRecord(request.IDOf(strconv.Itoa(n)))
		must.Get(r.store.Requests.Create(r.ctx, rec.ID, &rec, state.Ask{Who: user}))(t)
		// What was asked on another day ended then: the store reckons from now.
		must.Get(r.store.Requests.Finish(r.ctx, rec.ID, 1, &rec, state.End{
			Who: user, Asked: time.Now().Add(-ago - took), Command: command, Outcome: string(outcome), Done: outcome == request.Done,
		}))(t)
	}
	for i := range 19 {
		ended("generate", "telegram:"+strconv.Itoa(i%3), request.Done, 0, 10*time.Second)
	}
	ended("edit", "telegram:5", request.Done, 0, 20*time.Minute)
	ended("edit", "telegram:5", request.Failed, 48*time.Hour, 0)
	shown := ask("5", "m3")
	for _, want := range []string{
		"Last 30 days: 21 requests, 20 done, up to ", "people a day.", "Half were done within 1", "nearly all within ", "/generate 19 · /edit 2",
	} {
		require.Contains(t, shown.Text, want)
	}

	r.fails.Store(true)
	r.event("6", "6", platform.Said, "m4", "/generate a fox")
	require.Eventually(t, func() bool { return r.talk.o.Runner.LastFault() != nil }, time.Minute, 10*time.Millisecond)
	require.Contains(t, ask("5", "m5").Text, "ago, /generate: no such file: /srv/a.pt")
	r.event("5", "-9", platform.Said, "m6", "/stats")
	require.NotContains(t, r.heard("-9"), "/srv", "others read along")
}

// styled gives the commands of a rig a style.
func (r *rig) styled() {
	for i, c := range r.talk.commands.list {
		c, _ = c.WithStyles([]workflow.Style{{Name: "film", Spec: workflow.StyleSpec{
			Prompt: "{prompt}, forbidden film", About: map[string]string{"en": "like a film"}, Arguments: map[string]string{"cfg": "4"},
		}}})
		r.talk.commands.list[i], r.talk.commands.byName[c.Name] = c, c
	}
}

func TestStylesInTheChat(t *testing.T) {
	r := parallelRig(t, limits.Config{Words: []string{"forbidden"}})
	id := r.pictured("5", "5")
	r.event("5", "5", platform.Said, "m", "/styles")
	posts, _ := r.sent()
	require.Contains(t, posts[0].Text, "no styles")
	r.tap("5", "5", request.VerbStyles, id)
	r.tap("5", "5", request.VerbStyle+"film", id)
	require.Empty(t, r.prompts("5"))

	r.styled()
	r.sent()
	r.event("5", "5", platform.Said, "m", "/styles")
	posts, _ = r.sent()
	require.Contains(t, posts[0].Text, "film - like a film (/generate)")
	r.answer("5", "5", "pic", "/styles")
	posts, _ = r.sent()
	want := []platform.Button{{Label: "film", Data: "y.film:" + id}}
	require.Equal(t, want, posts[0].Buttons[0])
	r.tap("5", "5", request.VerbStyles, id)
	_, edits := r.sent()
	require.Equal(t, want, edits[0].Buttons[0])

	// The same picture in the style: the operator's words are not refused, the user's are.
	rec := r.record(r.tap("5", "5", request.VerbStyle+"film", id))
	require.Equal(t, []string{"film"}, rec.Args.Styles)
	require.EqualValues(t, 7, rec.Args.Seed)
	require.Equal(t, "a fox", rec.Args.Prompt)
	r.event("5", "5", platform.Said, "m2", "/generate a forbidden fox --style film")
	r.event("5", "5", platform.Said, "m3", "/generate a red fox --style FILM")
	require.Equal(t, []string{"a fox", "a red fox"}, r.prompts("5"))
	posts, _ = r.sent()
	require.Contains(t, posts[len(posts)-2].Text, "I won't make that")
}

func TestRemix(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	id := r.pictured("5", "5")
	got := func(id string) request.Record { return r.record(id) }
	rec := got(r.answer("5", "5", "pic", "/remix an owl --steps 9"))
	require.Equal(t, "an owl", rec.Args.Prompt)
	require.EqualValues(t, 7, rec.Args.Seed)
	require.Equal(t, 9, rec.Args.Steps)
	require.EqualValues(t, 8, got(r.answer("5", "5", "pic", "/remix an owl --seed 8")).Args.Seed)

	// The button asks for the words, and so does the command without any.
	r.sent()
	r.tap("5", "5", request.VerbRemix, id)
	r.answer("5", "5", "pic", "/remix")
	posts, _ := r.sent()
	require.Len(t, posts, 2)
	for _, post := range posts {
		require.Contains(t, post.Text, "“a fox”")
		require.True(t, post.Asks)
	}
	r.p.mu.Lock()
	asking := "b" + strconv.Itoa(r.p.n)
	r.p.mu.Unlock()
	rec = got(r.answer("5", "5", asking, "a hare"))
	require.Equal(t, "a hare", rec.Args.Prompt)
	require.EqualValues(t, 7, rec.Args.Seed)
	require.Equal(t, "generate", rec.Command)

	r.answer("6", "5", "pic", "/remix mine")
	require.Empty(t, r.prompts("6"), "nobody else sees that chat")
}

// links are the buttons of a post that open something.
func links(p platform.Post) (list []platform.Button) {
	for _, row := range p.Buttons {
		for _, b := range row {
			if b.URL != "" {
				list = append(list, b)
			}
		}
	}
	return list
}

// What is said of a picture links to the files that are shown, if the hub gives links.
func TestLinksToOriginals(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	id := r.pictured("5", "5")
	about := func(change func(*request.Record)) []platform.Button {
		rec := request.Record{}
		version := must.Get(r.store.Requests.Load(r.ctx, id, &rec))(t)
		change(&rec)
		must.Get(r.store.Requests.Save(r.ctx, id, version, &rec))(t)
		r.tap("5", "5", request.VerbMore, id)
		posts, _ := r.sent()
		require.Len(t, posts, 1)
		return links(posts[0])
	}
	require.Empty(t, about(func(*request.Record) {}), "the hub gives none")
	const link = "https://files.example/hub/files/linked.png?signature=s"
	require.Equal(t, []platform.Button{{Label: "⬇️ Original 1", URL: link}, {Label: "⬇️ Original 2", URL: link}}, about(func(rec *request.Record) {
		rec.Outputs[0].Ref.Filename, rec.Outputs[1].Ref.Filename = "linked.png", "linked2.png"
	}))
	require.Equal(t, []platform.Button{{Label: "⬇️ Original 1", URL: link}}, about(func(rec *request.Record) {
		rec.Outputs[1].State, rec.Outputs[1].Verdict = request.Kept, request.Withheld
	}), "what is not shown has none")
	r.tap("5", "5", request.VerbBack, id)
	_, edits := r.sent()
	require.Len(t, links(edits[0]), 1, "the menu that comes back, too")
	require.Equal(t, []platform.Button{{Label: "⬇️ Original", URL: link}}, about(func(rec *request.Record) { rec.Outputs = rec.Outputs[:1] }))
}

func TestLinksOfTheOperator(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.event("5", "5", platform.Said, "m1", "/help")
	posts, _ := r.sent()
	require.Empty(t, posts[len(posts)-1].Buttons)
	r.with(func(o *Options) { o.HelpURL = "https://example.com/bot" })
	r.event("5", "5", platform.Said, "m2", "/help")
	posts, _ = r.sent()
	require.Equal(t, []platform.Button{{Label: "📖 More about me", URL: "https://example.com/bot"}}, links(posts[len(posts)-1]))

	r.with(func(o *Options) {
		o.Terms = &Terms{Texts: map[string]string{"en": "Be kind, as in (https://example.com/terms?v=1). Not http://[. Again: https://example.com/terms?v=1"}, Version: "1"}
	})
	r.event("5", "5", platform.Said, "m3", "/generate a fox")
	posts, _ = r.sent()
	require.Len(t, posts, 1)
	require.Equal(t, []platform.Button{{Label: "🔗 example.com", URL: "https://example.com/terms?v=1"}}, links(posts[0]))
	require.Len(t, posts[0].Buttons, 2, "the link, and below it the button that accepts")
}
