package conversation

import (
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// tap presses a button about a request, and returns the id of what that may ask for.
func (r *rig) tap(user, chat, verb, id string) string {
	r.t.Helper()
	r.last++
	e := platform.Event{
		ID: "press" + strconv.Itoa(r.last), Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: request.ButtonData(verb, id),
		User: platform.User{ID: user, Language: "en"}, Chat: platform.Chat{ID: chat, Group: chat[0] == '-'}, Message: platform.Message{ID: "under"},
	}
	r.noteUnder(chat, "under", id)
	require.NoError(r.t, r.talk.Handle(r.ctx, e))
	return request.IDOf(e.Key())
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
	r.last++
	e := platform.Event{
		ID: strconv.Itoa(r.last), Platform: "telegram", Kind: platform.Said, User: platform.User{ID: user, Language: "en"},
		Chat:    platform.Chat{ID: chat, Group: chat[0] == '-'},
		Message: platform.Message{ID: "m" + strconv.Itoa(r.last), Text: text, ReplyTo: &platform.Message{ID: to}},
	}
	require.NoError(r.t, r.talk.Handle(r.ctx, e))
	return request.IDOf(e.Key())
}

// pictured is made, in a group or not, with a message "pic" that shows it.
func (r *rig) pictured(user, chat string) string {
	r.t.Helper()
	id := r.made("generate", user, chat)
	rec, version := request.Record{}, int64(0)
	version, err := r.store.Requests.Load(r.ctx, id, &rec)
	require.NoError(r.t, err)
	rec.Chat.Group = chat[0] == '-'
	for i := range rec.Outputs {
		rec.Outputs[i].Message = "pic"
	}
	_, err = r.store.Requests.Save(r.ctx, id, version, &rec)
	require.NoError(r.t, err)
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
	t.Parallel()
	r := newRig(t, limits.Config{})
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
	body, err := posts[1].Files[0].Open(r.ctx)
	require.NoError(t, err)
	graph, err := io.ReadAll(body)
	require.NoError(t, err)
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
	t.Parallel()
	r := newRig(t, limits.Config{Admins: []string{"telegram:6"}})
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
