package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Where a workflow makes a picture from a picture, a variation is subtle or strong by how
// much it may change; elsewhere by its seed.
func TestSubtleAndStrong(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	id := r.pictured("5", "5")
	got := func(verb string) request.Record {
		rec, err := r.talk.o.Runner.Load(r.ctx, r.tap("5", "5", verb, id))
		require.NoError(t, err)
		return rec
	}
	subtle, strong := got("w2"), got("x2")
	require.EqualValues(t, 9, subtle.Args.Seed, "beside")
	require.False(t, strong.Args.SeedGiven)
	require.NotEqualValues(t, 9, strong.Args.Seed)
	for _, rec := range []request.Record{subtle, strong} {
		require.Equal(t, "generate", rec.Command)
		require.Equal(t, "a fox", rec.Args.Prompt)
		require.Empty(t, rec.Inputs)
	}

	vary, err := workflow.NewCommand("vary", workflow.Spec{Varies: true, Inputs: map[workflow.Role]string{workflow.Strength: "2.strength"}},
		[]byte(`{"1": {"class_type": "LoadImage", "inputs": {"image": "x.png"}}, "2": {"class_type": "Text", "inputs": {"text": "x", "strength": 0.5}, "_meta": {"title": "prompt"}}}`))
	require.NoError(t, err)
	r.talk.commands.byName["vary"], r.talk.commands.vary = vary, "vary"
	subtle, strong = got("w2"), got("x2")
	require.Less(t, subtle.Args.Strength, 0.5)
	require.Greater(t, strong.Args.Strength, 0.5)
	for _, rec := range []request.Record{subtle, strong} {
		require.Equal(t, "vary", rec.Command)
		require.Equal(t, "b.png", rec.Inputs[0].From.Filename)
	}
}
