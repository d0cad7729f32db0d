package conversation

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// tap presses a button about a request, and returns the id of what that may ask for.
func (r *rig) tap(user, chat, verb, id string) string {
	r.t.Helper()
	r.noteUnder(chat, "under", id)
	return r.pressed(user, chat, "under", request.ButtonData(verb, id))
}

// noteUnder notes what the buttons under a message are about.
func (r *rig) noteUnder(chat, message, about string) {
	r.t.Helper()
	about, _, _ = strings.Cut(about, ":")
	require.NoError(r.t, r.store.Put(r.ctx, request.MessageKind, request.MessageName("telegram", chat, message), about, request.PictureKeep))
}

// answer says something as an answer to a message.
func (r *rig) answer(user, chat, to, text string) string {
	r.t.Helper()
	e := r.message(user, chat, text, to)
	require.NoError(r.t, r.talk.Handle(r.ctx, e))
	return request.IDOf(e.Key())
}

// pictured is made, in a group or not, with a message "pic" that shows it.
func (r *rig) pictured(user, chat string) string {
	r.t.Helper()
	id := r.made("generate", user, chat)
	r.change(id, func(rec *request.Record) {
		rec.Chat.Group = chat[0] == '-'
		for i := range rec.Outputs {
			rec.Outputs[i].Message = "pic"
		}
	})
	require.NoError(r.t, r.store.Put(r.ctx, request.MessageKind, request.MessageName("telegram", chat, "pic"), id, request.PictureKeep))
	return id
}

// sent are the posts and edits since the last call.
func (r *rig) sent() (posts, edits []platform.Post) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	posts, edits = r.p.posts, r.p.edits
	r.p.posts, r.p.edits = nil, nil
	return posts, edits
}

func TestWhatMadeAPicture(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	id := r.pictured("5", "5")
	r.tap("5", "5", request.VerbMore, id)
	posts, _ := r.sent()
	require.Len(t, posts, 1)
	for _, want := range []string{"/generate", "a fox", "Seed 7", "4 steps"} {
		require.Contains(t, posts[0].Text, want)
	}
	require.Equal(t, "under", posts[0].ReplyTo)
	require.True(t, posts[0].Private)

	// As an answer to the picture: the same, and the workflow as a file. The hub of this
	// test has forgotten it, so it is the command's with the values of the request.
	r.answer("5", "5", "pic", "/info")
	posts, _ = r.sent()
	require.Len(t, posts, 2)
	require.Contains(t, posts[0].Text, "Seed 7")
	require.Len(t, posts[1].Files, 1)
	body := must.Get(posts[1].Files[0].Open(r.ctx))(t)
	graph := must.Get(io.ReadAll(body))(t)
	require.Contains(t, string(graph), `"text": "a fox"`)
	require.Contains(t, string(graph), `"seed": 7`)
	require.Equal(t, "generate.json", posts[1].Files[0].Name)

	r.answer("5", "5", "something else", "/info")
	require.Contains(t, strings.Join(r.p.in("5"), "\n"), "Reply to one of my pictures")
}

func TestGPUName(t *testing.T) {
	t.Parallel()
	for gpu, want := range map[string]string{
		"cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync": "NVIDIA GeForce RTX 4090", "mps": "mps", "cpu": "cpu", "AMD Radeon": "AMD Radeon", "": "",
	} {
		require.Equal(t, want, gpuName(gpu))
	}
}

// What somebody has said to the bot alone is nobody else's business, not even where a
// platform lets others into that chat.
func TestWhoMayReadWords(t *testing.T) {
	r := parallelRig(t, limits.Config{Admins: []string{"telegram:6"}})
	alone, group := r.pictured("5", "5"), r.pictured("7", "-9")
	for _, verb := range []string{request.VerbMore, request.VerbWorkflow} {
		r.tap("6", "5", verb, alone)
		r.tap("6", "6", verb, alone)
		r.tap("5", "5", verb, group)
	}
	r.answer("6", "5", "pic", "/info")
	r.answer("6", "6", "pic", "/info")
	posts, _ := r.sent()
	for _, post := range posts {
		require.NotContains(t, post.Text, "fox")
		require.Empty(t, post.Files)
	}
	r.tap("6", "-9", request.VerbMore, group)
	posts, _ = r.sent()
	require.Len(t, posts, 1)
	require.Contains(t, posts[0].Text, "a fox")
}

// made stores a request of a user that has made two pictures, as after a restart.
func (r *rig) made(command, user, chat string) string {
	r.t.Helper()
	rec := request.NewRecord(request.IDOf("made/" + command + user))
	rec.Platform, rec.Chat.ID, rec.User.ID, rec.Language, rec.Message = "telegram", chat, user, "en", "m"
	rec.Phase, rec.Outcome, rec.Command = request.Over, request.Done, command
	rec.Args = workflow.Args{Prompt: "a fox", Seed: 7}
	for _, name := range []string{"a.png", "b.png"} {
		out := request.Output{State: request.Arrived}
		out.Ref.Filename, out.Ref.Type = name, "output"
		rec.Outputs = append(rec.Outputs, out)
	}
	must.Get(r.store.Requests.Create(r.ctx, rec.ID, &rec, state.Ask{Who: rec.Tenant()}))(r.t)
	must.Get(r.store.Requests.Finish(r.ctx, rec.ID, 1, &rec, state.End{Who: rec.Tenant(), Asked: rec.Asked}))(r.t)
	return rec.ID
}

func TestPicturesByNumber(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	press := func(user, chat, data string) (request.Record, error) {
		return r.talk.o.Runner.Load(r.ctx, r.pressed(user, chat, "b", data))
	}
	id := r.made("generate", "5", "5")

	// Without a command for it: others with the seed beside.
	rec := must.Get(press("5", "5", request.ButtonData("v2", id)))(t)
	require.Equal(t, "generate", rec.Command)
	require.Equal(t, "a fox", rec.Args.Prompt)
	require.EqualValues(t, 9, rec.Args.Seed)
	require.Empty(t, rec.Inputs)

	// With one: from the picture of that number, for whoever pressed.
	vary := must.Get(workflow.NewCommand("vary", workflow.Spec{Varies: true}, []byte(`{"1": {"class_type": "LoadImage", "inputs": {"image": "x.png"}},
		"2": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}}}`)))(t)
	upscale := must.Get(workflow.NewCommand("upscale", workflow.Spec{Upscales: true}, []byte(`{"1": {"class_type": "LoadImage", "inputs": {"image": "x.png"}}}`)))(t)
	r.talk.commands.byName["vary"], r.talk.commands.byName["upscale"], r.talk.commands.vary, r.talk.commands.upscale = vary, upscale, "vary", "upscale"
	for data, want := range map[string][2]string{"v1": {"vary", "a.png"}, "v2": {"vary", "b.png"}, "u2": {"upscale", "b.png"}} {
		rec, err := press("6", "5", request.ButtonData(data, id))
		require.NoError(t, err, data)
		require.Equal(t, want[0], rec.Command)
		require.Equal(t, want[1], rec.Inputs[0].From.Filename)
		require.Equal(t, "telegram:5", rec.Inputs[0].Owner)
		require.Equal(t, "6", rec.User.ID)
		require.Equal(t, "a fox", rec.Words(), "what the picture shows is still known")
	}

	// What nobody offered, and a button of another chat.
	for _, data := range []string{"u0", "u3", "v-1", "v", "u", "u1x", "q1", "u99999999999999999999"} {
		_, err := press("5", "5", request.ButtonData(data, id))
		require.ErrorIs(t, err, state.ErrNotFound, data)
	}
	_, err := press("7", "7", request.ButtonData("v1", id))
	require.ErrorIs(t, err, state.ErrNotFound)
}

// Where a workflow makes a picture from a picture, a variation is subtle or strong by how
// much it may change; elsewhere by its seed.
func TestSubtleAndStrong(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	id := r.pictured("5", "5")
	got := func(verb string) request.Record { return r.record(r.tap("5", "5", verb, id)) }
	subtle, strong := got("w2"), got("x2")
	require.EqualValues(t, 9, subtle.Args.Seed, "beside")
	require.False(t, strong.Args.SeedGiven)
	require.NotEqualValues(t, 9, strong.Args.Seed)
	for _, rec := range []request.Record{subtle, strong} {
		require.Equal(t, "generate", rec.Command)
		require.Equal(t, "a fox", rec.Args.Prompt)
		require.Empty(t, rec.Inputs)
	}

	vary := must.Get(workflow.NewCommand("vary", workflow.Spec{Varies: true, Inputs: map[workflow.Role]string{workflow.Strength: "2.strength"}},
		[]byte(`{"1": {"class_type": "LoadImage", "inputs": {"image": "x.png"}}, "2": {"class_type": "Text", "inputs": {"text": "x", "strength": 0.5}, "_meta": {"title": "prompt"}}}`)))(t)
	r.talk.commands.byName["vary"], r.talk.commands.vary = vary, "vary"
	subtle, strong = got("w2"), got("x2")
	require.Less(t, subtle.Args.Strength, 0.5)
	require.Greater(t, strong.Args.Strength, 0.5)
	for _, rec := range []request.Record{subtle, strong} {
		require.Equal(t, "vary", rec.Command)
		require.Equal(t, "b.png", rec.Inputs[0].From.Filename)
	}
}

// A favourite belongs to whoever pressed the star; of several pictures it is one.
func TestFavourites(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	id := r.pictured("5", "-9")
	r.tap("6", "-9", request.VerbStar+"0", id)
	_, edits := r.sent()
	require.Len(t, edits, 1)
	require.Equal(t, []platform.Button{{Label: "1", Data: "f1:" + id}, {Label: "2", Data: "f2:" + id}}, edits[0].Buttons[0])
	r.tap("6", "-9", request.VerbStar+"2", id)
	r.tap("6", "-9", request.VerbStar+"9", id)
	stars := must.Get(r.store.People.Stars(r.ctx, "telegram:6", "fox"))(t)
	require.Len(t, stars, 1)
	require.Equal(t, id+"/1", stars[0].ID())
	require.Equal(t, "pic", stars[0].Message)
	require.Equal(t, "-9", stars[0].Chat)
	stars = must.Get(r.store.People.Stars(r.ctx, "telegram:5", ""))(t)
	require.Empty(t, stars)
	r.tap("6", "-9", request.VerbStar+"2", id)
	stars = must.Get(r.store.People.Stars(r.ctx, "telegram:6", ""))(t)
	require.Empty(t, stars)
}

// change alters a stored request.
func (r *rig) change(id string, how func(*request.Record)) {
	r.t.Helper()
	var rec request.Record
	version := must.Get(r.store.Requests.Load(r.ctx, id, &rec))(r.t)
	how(&rec)
	must.Get(r.store.Requests.Save(r.ctx, id, version, &rec))(r.t)
}

// Pictures that are shown again can be answered like those that were shown first, also where
// the platform does not hand them over.
func TestAnswersToPicturesShownAgain(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{request.VerbFile, request.VerbResend, request.VerbPick + "1", verbGet} {
		for _, chat := range []string{"5", "-9"} {
			t.Run(verb+" in "+chat, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, limits.Config{})
				r.editing()
				id := r.pictured("5", chat)
				r.change(id, func(rec *request.Record) { rec.Outputs[0].State = request.Unsure })
				data := id
				if verb == verbGet {
					data += ":1"
				}
				r.tap("5", chat, verb, data)
				posts, _ := r.sent()
				require.NotEmpty(t, posts)
				require.Len(t, posts[0].Files, 1)
				require.Equal(t, "edit in winter a.png of telegram:5", r.asks(r.message("5", chat, "in winter", "b1")))
				r.sent()
				r.answer("5", chat, "b1", "/info")
				posts, _ = r.sent()
				require.Contains(t, posts[0].Text, "a fox")
			})
		}
	}
}

// What moderation keeps back is not lost, and its user is told so.
func TestKeptBackIsSaid(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]string{
		request.VerbFile: "2 files aren't shown here: too bold", request.VerbResend: "2 files aren't shown here: too bold",
		request.VerbPick + "2": "1 file isn't shown here: too bold", verbGet: "2 files aren't shown here: too bold",
	} {
		r := newRig(t, limits.Config{})
		id := r.pictured("5", "5")
		r.change(id, func(rec *request.Record) {
			for i := range rec.Outputs {
				rec.Outputs[i].State, rec.Outputs[i].Reason = request.Kept, "too bold"
			}
		})
		data := id
		if verb == verbGet {
			data += ":0"
		}
		r.tap("5", "5", verb, data)
		require.Equal(t, []string{want}, r.p.in("5"), verb)
	}
}

// A text that a run made goes with the rest of its request.
func TestTextsAreDeleted(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	id := r.pictured("5", "5")
	r.change(id, func(rec *request.Record) {
		rec.Outputs, rec.Texts = nil, []request.Text{{Told: true, Message: "words"}}
	})
	r.tap("5", "5", request.VerbDeleteNow, id)
	require.Contains(t, r.p.gone, "words")
	var rec request.Record
	_, err := r.store.Requests.Load(r.ctx, id, &rec)
	require.ErrorIs(t, err, state.ErrNotFound)
}
