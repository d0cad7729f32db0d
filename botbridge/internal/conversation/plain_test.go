package conversation

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// editing gives a rig a command that makes a picture from a picture and words.
func (r *rig) editing() {
	r.t.Helper()
	edit := must.Get(workflow.NewCommand("edit", workflow.Spec{}, []byte(`{"1": {"class_type": "LoadImage", "inputs": {"image": "x.png"}},
		"2": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}}}`)))(r.t)
	r.talk.commands.byName["edit"], r.commands["edit"], r.talk.commands.edit = edit, edit, "edit"
	r.talk.commands.list = append(r.talk.commands.list, edit)
}

// message is what somebody says: to is the message that it answers to, files are ids.
func (r *rig) message(user, chat, text, to string, files ...string) platform.Event {
	r.last++
	e := platform.Event{
		ID: "e" + strconv.Itoa(r.last), Platform: "telegram", Kind: platform.Said, User: platform.User{ID: user, Language: "en"},
		Chat: platform.Chat{ID: chat, Group: chat[0] == '-'}, Message: platform.Message{ID: "m" + strconv.Itoa(r.last), Text: text},
	}
	for _, id := range files {
		e.Message.Files = append(e.Message.Files, platform.File{ID: id, Type: "image/jpeg"})
	}
	if to != "" {
		e.Message.ReplyTo = &platform.Message{ID: to}
	}
	return e
}

// asks handles an event and describes the request that it led to: "edit in winter
// photo1", "" for none.
func (r *rig) asks(e platform.Event) string {
	r.t.Helper()
	require.NoError(r.t, r.talk.Handle(r.ctx, e))
	return r.described(request.IDOf(e.Key()))
}

// described describes a request like asks.
func (r *rig) described(id string) string {
	r.t.Helper()
	rec, err := r.talk.o.Runner.Load(r.ctx, id)
	if err != nil {
		require.ErrorIs(r.t, err, state.ErrNotFound)
		return ""
	}
	text := rec.Command + " " + rec.Args.Prompt
	for _, in := range rec.Inputs {
		if in.From != nil {
			text += " " + in.From.Filename + " of " + in.Owner
		} else {
			text += " " + in.File.ID
		}
	}
	return text
}

// What was asked for behind a spoiler does not come into the open when somebody changes it.
func TestCoveredStaysCovered(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.editing()
	for _, hidden := range []bool{true, false} {
		id := r.painted("5", "-9", fmt.Sprint("a fox, hidden: ", hidden), func(rec *request.Record) { rec.Args.Spoiler = hidden })
		require.NoError(t, r.store.Put(r.ctx, request.PictureKind, request.MessageName("telegram", "-9", "shown"), request.Shown{Request: id, Outputs: []int{0}}, 0))
		e := r.message("6", "-9", "in winter", "shown")
		require.Equal(t, "edit in winter a.png of telegram:5", r.asks(e))
		require.Equal(t, hidden, r.record(request.IDOf(e.Key())).Cover)
	}
}

func TestPlainWords(t *testing.T) {
	r := parallelRig(t, limits.Config{Waiting: 100})
	r.editing()
	id := r.made("generate", "5", "5")
	for _, message := range []string{"one", "both"} {
		shown := request.Shown{Request: id, Outputs: []int{1}}
		if message == "both" {
			shown.Outputs = []int{0, 1}
		}
		for _, chat := range []string{"5", "7", "-9"} {
			require.NoError(t, r.store.Put(t.Context(), request.PictureKind, request.MessageName("telegram", chat, message), shown, 0))
		}
	}
	handed := r.message("5", "5", "in winter", "unknown")
	handed.Message.ReplyTo.Files = []platform.File{{ID: "photo3", Type: "image/png"}}
	named := r.message("5", "-9", "in winter", "", "photo4")
	named.Addressed = true
	for name, c := range map[string]struct {
		e    platform.Event
		want string
	}{
		"words":                          {r.message("5", "5", "a fox", ""), "generate a fox"},
		"a photo with words":             {r.message("5", "5", "in winter", "", "photo1"), "edit in winter photo1"},
		"an answer to a picture":         {r.message("5", "5", "in winter", "one"), "edit in winter b.png of telegram:5"},
		"an answer that brings its own":  {r.message("5", "5", "in winter", "one", "photo2"), "edit in winter photo2"},
		"an answer to a handed picture":  {handed, "edit in winter photo3"},
		"an answer to other words":       {r.message("5", "5", "a bear", "unknown"), "generate a bear"},
		"a command to a picture":         {r.message("5", "5", "/edit in winter", "one"), "edit in winter b.png of telegram:5"},
		"one of two":                     {r.message("5", "5", "#2 in winter", "both"), "edit in winter b.png of telegram:5"},
		"one of two, by a command":       {r.message("5", "5", "/edit 1: in winter", "both"), "edit in winter a.png of telegram:5"},
		"a group":                        {r.message("6", "-9", "in winter", ""), ""},
		"a photo in a group":             {r.message("6", "-9", "in winter", "", "photo1"), ""},
		"an answer in a group":           {r.message("6", "-9", "in winter", "one"), "edit in winter b.png of telegram:5"},
		"an answer to others in a group": {r.message("6", "-9", "in winter", "unknown"), ""},
		"a photo for the bot in a group": {named, "edit in winter photo4"},
	} {
		require.Equal(t, c.want, r.asks(c.e), name)
	}
	require.Empty(t, r.asks(r.message("7", "7", "2 foxes", "both")), "that is no number of a picture")
	require.Contains(t, r.p.in("7")[0], "Which of the 2 pictures?")
	require.Equal(t, "edit 2 foxes a.png of telegram:5", r.asks(r.message("7", "7", "1", "")))
}

func TestPick(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"2": 2, "#2": 2, "#2 in winter": 2, "2: in winter": 2, "2) in winter": 2, "2. in winter": 2,
		"2 foxes": 0, "3": 0, "0": 0, "#": 0, "": 0, "2.5 metres": 0, "20: x": 0, "a 2": 0, "9999999999999999999999": 0,
	} {
		number, rest := pick(text, 2)
		require.Equal(t, want, number, text)
		if want == 0 {
			require.Equal(t, text, rest)
		}
	}
}

func TestEditCommand(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	require.Empty(t, EditCommand("", "generate", r.talk.commands.list))
	r.editing()
	require.Equal(t, "edit", EditCommand("", "generate", r.talk.commands.list))
	require.Equal(t, "edit", EditCommand("edit", "", r.talk.commands.list))
}

// /start says only what is true where it is said: that plain words are enough, or which
// command they need.
func TestStart(t *testing.T) {
	r := parallelRig(t, limits.Config{Messages: 100})
	r.talk.commands.plain, r.talk.commands.edit = "", ""
	said := func(chat string) string {
		require.NoError(t, r.talk.Handle(r.ctx, r.message("5", chat, "/start", "")))
		all := r.p.in(chat)
		return all[len(all)-1]
	}
	const command = "Hi! I make pictures. Tell me what you want to see, for example: /generate a red fox in the snow.\n/help shows everything else I can do."
	require.Equal(t, command, said("5"))
	r.talk.commands.plain = "generate"
	r.editing()
	require.Equal(t, "Hi! Tell me what you want to see, and I'll make a picture of it. For example: a red fox in the snow.\n"+
		"Or send me a photo and say what to change.\n/help shows everything else I can do.", said("5"))
	require.Equal(t, command, said("-9"), "in a group, plain words are not for the bot")
}

// What nothing can be made of gets a word about it, and a command with it makes nothing.
func TestUselessFiles(t *testing.T) {
	r := parallelRig(t, limits.Config{Waiting: 100, Messages: 100})
	r.editing()
	for chat, c := range map[string]struct {
		file platform.File
		text string
		want string
	}{
		"11": {platform.File{Type: platform.Voice}, "", "I can't listen to voice messages"},
		"12": {platform.File{Type: platform.Sticker}, "", "Nice! Now tell me in words"},
		"13": {platform.File{Name: "cv.pdf", Type: "application/pdf"}, "", "I can't use files like this"},
		"14": {platform.File{Name: "IMG_1.HEIC"}, "in winter", "I can't open HEIC pictures"},
		"15": {platform.File{Name: "x", Type: "image/heif"}, "/edit in winter", "I can't open HEIC pictures"},
		"-9": {platform.File{Type: platform.Sticker}, "", ""},
	} {
		e := r.message("5", chat, c.text, "")
		e.Message.Files, e.Addressed = []platform.File{c.file}, true
		require.Empty(t, r.asks(e), chat)
		if c.want == "" {
			require.Empty(t, r.p.in(chat))
			continue
		}
		require.Len(t, r.p.in(chat), 1, chat)
		require.Contains(t, r.p.in(chat)[0], c.want)
	}
}

func TestCommandOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"/generate a fox":       {"generate", "a fox"},
		"  /Generate\ta  fox  ": {"generate", "a  fox"},
		"/poster":               {"poster", ""},
		"/ban 5\n3":             {"ban", "5\n3"},
		"/ a":                   {"", "a"},
		"/статус":               {"статус", ""},
	} {
		name, rest, ok := commandOf(text)
		require.True(t, ok, text)
		require.Equal(t, want, [2]string{name, rest}, text)
	}
	for _, text := range []string{"", "/", "a /b", "generate"} {
		_, _, ok := commandOf(text)
		require.False(t, ok, text)
	}
	name, _, ok := commandOf("/" + strings.Repeat("x", 1000))
	require.True(t, ok)
	require.Empty(t, name, "no command has such a name")
}

func FuzzCommandOf(f *testing.F) {
	f.Add("/generate a fox")
	f.Add("/")
	f.Fuzz(func(t *testing.T, text string) {
		name, rest, ok := commandOf(text)
		require.True(t, ok || name == "" && rest == "")
		require.NotContains(t, name, " ")
	})
}

func TestChatKey(t *testing.T) {
	t.Parallel()
	for _, c := range []platform.Chat{{ID: "5"}, {ID: "-100", Group: true}, {ID: "odd|id"}} {
		name, got, ok := ParseChatKey(ChatKey("telegram", c))
		require.True(t, ok)
		require.Equal(t, "telegram", name)
		require.Equal(t, c, got)
	}
	_, _, ok := ParseChatKey("telegram|5")
	require.False(t, ok)
}

// Every name that the bridge answers to is kept from workflows.
func TestReservedNames(t *testing.T) {
	t.Parallel()
	texts := must.Get(locale.Load(""))(t)
	for _, o := range []Options{{Texts: texts}, {Texts: texts, Enhance: &Enhance{}}} {
		talk := New(o)
		var names []string
		for name := range talk.messages.builtIn {
			names = append(names, name)
		}
		for name := range talk.messages.admin {
			names = append(names, name)
		}
		require.ElementsMatch(t, Reserved(o.Enhance != nil), names)
	}
}

// Again is another picture, also of one whose seed was chosen: the same seed would be
// the same picture.
func TestAgainIsAnotherPicture(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.event("5", "5", platform.Said, "m1", "/generate a fox --seed 7")
	require.Len(t, r.active("5"), 1)
	again := r.record(r.pressed("5", "5", "b1", request.ButtonData(request.VerbAgain, r.active("5")[0].ID)))
	require.Equal(t, "a fox", again.Args.Prompt)
	require.NotEqual(t, uint64(7), again.Args.Seed)
}

// In a group, words are for the bridge only if they name it.
func TestMentionsInGroups(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	for _, addressed := range []bool{false, true} {
		e := r.message("5", "-9", fmt.Sprint("a fox ", addressed), "")
		e.Addressed = addressed
		require.NoError(t, r.talk.Handle(r.ctx, e))
	}
	require.Equal(t, []string{"a fox true"}, r.prompts("5"))
}

// A status message of before a restart, of which nobody knows, goes when its button is
// pressed, and does not look as if it were going to change.
func TestLostStatusMessage(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.event("5", "5", platform.Said, "m1", "/generate a fox")
	require.Contains(t, r.p.in("5")[0], "👍")
	rec := r.active("5")[0]
	for _, message := range []string{rec.Status, "lost"} {
		r.pressed("5", "5", message, request.ButtonData(request.VerbStatus, rec.ID))
	}
	require.Equal(t, []string{"lost"}, r.p.gone)
}

func TestSuggest(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	for _, one := range []struct {
		command, argument, typed string
		want                     []string
	}{
		{"generate", "sampler", "", []string{"euler", "heun", "dpmpp_2m", "a", "b", "c", "d", "e"}},
		{"generate", "sampler", "dpm", []string{"dpmpp_2m"}},
		{"generate", "sampler", "2M", []string{"dpmpp_2m"}},
		{"generate", "sampler", "huen", []string{"heun"}},
		{"generate", "sampler", "qqqq", nil},
		{"generate", "cfg", "", []string{"7.5", "0", "100"}},
		{"generate", "cfg", "4", []string{"4", "0", "100"}},
		{"generate", "note", "", nil},
		{"generate", "prompt", "", nil},
		{"generate", "nothing", "", nil},
		{"nothing", "cfg", "", nil},
		{"help", "command", "gen", []string{"generate"}},
	} {
		require.Equal(t, one.want, r.talk.Suggest(r.ctx, one.command, one.argument, one.typed), "%+v", one)
	}
	r.away.Store(true)
	r.talk.handbook.catalogs.asked["Text"] = r.talk.handbook.catalogs.asked["Text"].Add(-catalogKeep)
	require.Equal(t, []string{"heun"}, r.talk.Suggest(r.ctx, "generate", "sampler", "heu"), "what the fleet has said counts while the hub is away")
}
