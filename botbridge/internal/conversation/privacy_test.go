package conversation

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// exported is what /export sends.
func (r *rig) exported(user string) (p personal) {
	r.t.Helper()
	r.event(user, user, platform.Said, "x", "/export")
	last := r.p.posts[len(r.p.posts)-1]
	require.Len(r.t, last.Files, 1)
	body, err := last.Files[0].Open(r.ctx)
	require.NoError(r.t, err)
	require.NoError(r.t, json.NewDecoder(body).Decode(&p))
	return p
}

// A user gets all that is kept about them, of nobody else, and can have it deleted.
func TestExportAndForget(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{Pictures: 10, Messages: 100})
	r.words(Enhance{})
	mine, others := r.made("generate", "5", "5"), r.made("generate", "6", "6")
	require.NoError(t, r.store.Put(r.ctx, settingsKind, "telegram:5", Settings{Language: "en", AsFile: true}, 0))
	require.NoError(t, r.talk.o.Guard.SetShare(r.ctx, "telegram:5", 7))
	for _, star := range []state.Star{{Request: mine, Words: "a fox"}, {Request: others, Words: "another fox"}} {
		_, err := r.store.People.Toggle(r.ctx, "telegram:5", star.ID(), star)
		require.NoError(t, err)
	}
	r.event("5", "5", platform.Said, "m1", "/generate a bear")
	r.event("5", "5", platform.Said, "m2", "/generate a wolf --enhance")
	r.event("5", "-9", platform.Said, "m3", "/generate")
	r.event("5", "5", platform.Said, "m4", "/my a secret")
	r.event("5", "5", platform.Said, "m5", "/my a secret")

	p := r.exported("5")
	require.Equal(t, "telegram:5", p.Who)
	require.JSONEq(t, `{"language": "en", "as_file": true}`, string(p.Settings))
	require.JSONEq(t, "7", string(p.Share))
	require.EqualValues(t, 1, p.Spent)
	require.Len(t, p.Waiting, 3, "an offer, a question in a group, and a search")
	require.Len(t, p.Favourites, 2)
	var prompts []string
	for _, rec := range p.Requests {
		prompts = append(prompts, rec.Args.Prompt)
		require.Empty(t, rec.Graph)
	}
	require.ElementsMatch(t, []string{"a fox", "a bear"}, prompts)

	for text, want := range map[string]string{"/forget": "/forget me - I'll delete", "/forget you": "/forget me - I'll delete", "/forget me": "Delete what I keep about you"} {
		r.event("5", "5", platform.Said, "m3", text)
		said := r.p.in("5")
		require.Contains(t, said[len(said)-1], want)
	}
	id := request.IDOf("forget/telegram:5")
	r.press("6", "5", verbForget, id)
	_, err := r.talk.o.Runner.Load(r.ctx, mine)
	require.NoError(t, err, "nobody else may press that")
	for range 2 {
		r.press("5", "5", verbForget, id)
	}
	_, edits := r.sent() // those of the status messages come by themselves
	require.True(t, slices.ContainsFunc(edits, func(p platform.Post) bool {
		return strings.Contains(p.Text, "Deleted, along with 1 finished request.\n1 request isn't finished yet")
	}), "%v", edits)
	p = r.exported("5")
	require.Empty(t, p.Settings)
	require.Empty(t, p.Waiting)
	require.Empty(t, p.Favourites)
	require.JSONEq(t, "7", string(p.Share), "what an operator has decided")
	require.EqualValues(t, 1, p.Spent, "and what was used of it")
	require.Len(t, p.Requests, 1)
	require.Equal(t, "a bear", p.Requests[0].Args.Prompt)
	_, err = r.talk.o.Runner.Load(r.ctx, others)
	require.NoError(t, err, "what others made is theirs")
}

// In a group, neither shows anything.
func TestExportIsPrivate(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.event("5", "-9", platform.Said, "m1", "/export")
	r.event("5", "-9", platform.Said, "m2", "/forget me")
	require.Len(t, r.p.posts, 2)
	for _, text := range r.p.in("-9") {
		require.Contains(t, text, "Others can read this chat.")
	}
}

// What does not fit into a file is left out from its oldest end.
func TestExportFits(t *testing.T) {
	t.Parallel()
	p := personal{Who: "telegram:5"}
	for range 100 {
		p.Requests = append(p.Requests, request.NewRecord("x"))
	}
	p.Requests[99].ID = "newest"
	doc, err := p.fit(10_000)
	require.NoError(t, err)
	require.Less(t, len(doc), 10_000)
	var read personal
	require.NoError(t, json.Unmarshal(doc, &read))
	require.Equal(t, 100, len(read.Requests)+read.LeftOut)
	require.Equal(t, "newest", read.Requests[len(read.Requests)-1].ID)
}
