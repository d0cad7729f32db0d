package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// What is asked in words can be filled in where there are forms, by whoever was asked.
func TestAnswerFilledIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.p.forms = true
	r.event("5", "-9", platform.Said, "m1", "/generate --steps 9")
	posts, _ := r.sent()
	require.Len(t, posts, 1)
	require.Equal(t, "✏️ Reply", posts[0].Buttons[0][0].Label)
	verb, id := verbAnswer, posts[0].Buttons[0][0].Data[len(verbAnswer)+1:]
	want := &platform.Form{Title: "✏️ Reply", Data: request.ButtonData(verb, id), Fields: []platform.Field{
		{Name: "prompt", Label: "What you want to see", Long: true, Required: true},
	}}
	require.Equal(t, want, r.opened(r.ctx, "5", "-9", verb, id, "b1"))
	require.Nil(t, r.opened(r.ctx, "6", "-9", verb, id, "b1"), "nobody asked them")
	require.Nil(t, r.opened(r.ctx, "5", "-9", verb, request.IDOf("other"), "b1"))
	r.fill("6", "-9", verb, id, map[string]string{"prompt": "mine"})
	r.fill("5", "-9", verb, id, map[string]string{"prompt": " "})
	require.Empty(t, append(r.prompts("5"), r.prompts("6")...))
	made := r.fill("5", "-9", verb, id, map[string]string{"prompt": "a fox"})
	rec, err := r.talk.o.Runner.Load(r.ctx, made)
	require.NoError(t, err)
	require.Equal(t, 9, rec.Args.Steps)
	require.Equal(t, []string{"a fox"}, r.prompts("5"))
	r.fill("5", "-9", verb, id, map[string]string{"prompt": "a bear"})
	require.Equal(t, []string{"a fox"}, r.prompts("5"), "a question is answered once")
	require.Nil(t, r.opened(r.ctx, "5", "-9", verb, id, "b1"))

	r.sent()
	r.event("5", "-9", platform.Said, "m2", "/inpaint")
	posts, _ = r.sent()
	require.Empty(t, posts[0].Buttons, "a picture cannot be filled in")
}
