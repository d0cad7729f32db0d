package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

func TestDelete(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		user, chat string
		stuck      bool
		goes       bool
	}{
		"whoever asked for it":    {"5", "-9", false, true},
		"somebody else":           {"6", "-9", false, false},
		"who keeps order there":   {"9", "-9", false, true},
		"the operator":            {"1", "-9", false, true},
		"in a private chat":       {"5", "5", false, true},
		"too old to be removed":   {"5", "5", true, true},
		"another's private chat":  {"6", "5", false, false},
		"the operator in private": {"1", "5", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, limits.Config{Admins: []string{"telegram:1"}})
			id := r.pictured("5", c.chat)
			_, err := r.store.People.Toggle(r.ctx, "telegram:7", "e", state.Star{Request: id})
			require.NoError(t, err)
			if c.stuck {
				r.p.stuck = map[string]bool{"pic": true}
			}
			r.tap(c.user, c.chat, request.VerbDelete, id)
			_, edits := r.sent()
			require.Len(t, edits, map[bool]int{true: 1}[c.goes], "it asks once more")
			_, err = r.talk.o.Runner.Load(r.ctx, id)
			require.NoError(t, err, "nothing is gone yet")
			r.tap(c.user, c.chat, request.VerbDeleteNow, id)
			_, edits = r.sent()
			_, err = r.talk.o.Runner.Load(r.ctx, id)
			stars, starErr := r.store.People.Stars(r.ctx, "telegram:7", "")
			require.NoError(t, starErr)
			if !c.goes {
				require.NoError(t, err)
				require.Empty(t, r.p.gone)
				require.Len(t, stars, 1)
				return
			}
			require.ErrorIs(t, err, state.ErrNotFound)
			require.Empty(t, stars)
			if c.stuck {
				require.Contains(t, edits[0].Text, "1 of 1 message.")
				return
			}
			require.Equal(t, []string{"pic", "under"}, r.p.gone, "the picture once, and the question")
			require.Empty(t, edits)
		})
	}
}

// What was said about a picture goes with it.
func TestDeleteWhatWasSaid(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	id := r.pictured("5", "5")
	r.tap("5", "5", request.VerbMore, id)     // b1
	r.tap("5", "5", request.VerbWorkflow, id) // b2
	r.tap("5", "5", request.VerbRemix, id)    // b3
	rec, err := r.talk.o.Runner.Load(r.ctx, id)
	require.NoError(t, err)
	require.Equal(t, []string{"b1", "b2", "b3"}, rec.Copies)
	r.tap("5", "5", request.VerbDeleteNow, id)
	require.Equal(t, []string{"pic", "b1", "b2", "b3", "under"}, r.p.gone)
	for n := range 60 {
		require.NoError(t, r.talk.o.Runner.NoteCopies(r.ctx, id, "gone"), n)
	}
	other := r.made("generate", "6", "6")
	for range 60 {
		require.NoError(t, r.talk.o.Runner.NoteCopies(r.ctx, other, "c"))
	}
	rec, err = r.talk.o.Runner.Load(r.ctx, other)
	require.NoError(t, err)
	require.Len(t, rec.Copies, 50)
}

// Nobody loses a picture that is still being made, and a reply works like the button.
func TestDeleteByCommand(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.event("5", "5", "said", "m1", "/generate a fox")
	r.answer("5", "5", "m1", "/delete")
	posts, _ := r.sent()
	require.Contains(t, posts[len(posts)-1].Text, "isn't finished yet")
	id := r.pictured("5", "5")
	r.answer("6", "5", "pic", "/delete")
	r.answer("5", "5", "pic", "/delete")
	posts, _ = r.sent()
	require.Contains(t, posts[0].Text, "Reply to one of my pictures")
	require.Contains(t, posts[1].Text, "Remove this picture")
	require.Equal(t, request.ButtonData(request.VerbDeleteNow, id), posts[1].Buttons[0][0].Data)
}
