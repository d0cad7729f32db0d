package request

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// Files of a group that are shown in a private chat come from the group, each of them,
// and the messages there are no business of the group.
func TestShownInAnotherChat(t *testing.T) {
	t.Parallel()
	store := ledStore(t)
	texts, err := locale.Load("")
	require.NoError(t, err)
	out := outbox.New(outbox.Options{})
	defer out.Close()
	p := &silent{limits: platform.Limits{File: 1 << 20, Photo: 1 << 20, Album: 10, Text: 4096, Caption: 1024}}
	r := NewRunner(Options{Store: store, Outbox: out, Texts: texts, Platform: func(string) platform.Platform { return p }, Command: func(string) *workflow.Command { return nil }})
	rec := NewRecord(IDOf(t.Name()))
	rec.Platform, rec.Chat, rec.User.ID, rec.Language = "silent", platform.Chat{ID: "-9", Group: true}, "7", "en"
	rec.Phase, rec.Outcome = Over, Done
	for _, message := range []string{"10", "11", "12"} {
		rec.Outputs = append(rec.Outputs, Output{Ref: comfyui.FileRef{Filename: "a.png", Type: "output"}, Media: platform.Document, State: Arrived, Message: message})
	}
	_, err = store.Requests.Create(t.Context(), rec.ID, &rec, state.Ask{Who: rec.Tenant()})
	require.NoError(t, err)
	require.NoError(t, r.SendTo(context.WithoutCancel(t.Context()), rec, []int{0, 1, 2}, platform.Chat{ID: "7"}, platform.Post{}))
	require.Len(t, p.sends, 3)
	for i, post := range p.sends {
		require.Equal(t, &platform.Original{Chat: "-9", Message: []string{"10", "11", "12"}[i]}, post.Copy)
	}
	kept, err := r.Load(t.Context(), rec.ID)
	require.NoError(t, err)
	require.Empty(t, kept.Copies)
}
