package conversation

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// editing gives a rig a command that makes a picture from a picture and words.
func (r *rig) editing() {
	r.t.Helper()
	edit, err := workflow.NewCommand("edit", workflow.Spec{}, []byte(`{"1": {"class_type": "LoadImage", "inputs": {"image": "x.png"}},
		"2": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}}}`))
	require.NoError(r.t, err)
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

func TestPlainWords(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{Waiting: 100})
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
	t.Parallel()
	r := newRig(t, limits.Config{})
	require.Empty(t, EditCommand("", "generate", r.talk.commands.list))
	r.editing()
	require.Equal(t, "edit", EditCommand("", "generate", r.talk.commands.list))
	require.Equal(t, "edit", EditCommand("edit", "", r.talk.commands.list))
}

// /start says only what is true where it is said: that plain words are enough, or which
// command they need.
func TestStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{Messages: 100})
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
	t.Parallel()
	r := newRig(t, limits.Config{Waiting: 100, Messages: 100})
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
