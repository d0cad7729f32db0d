package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// change alters a stored request.
func (r *rig) change(id string, how func(*request.Record)) {
	r.t.Helper()
	var rec request.Record
	version, err := r.store.Requests.Load(r.ctx, id, &rec)
	require.NoError(r.t, err)
	how(&rec)
	_, err = r.store.Requests.Save(r.ctx, id, version, &rec)
	require.NoError(r.t, err)
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
	t.Parallel()
	r := newRig(t, limits.Config{})
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
