package discord

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// A post that Discord no longer knows by its nonce is found by what it shows, among all that was
// said after it.
func TestRecall(t *testing.T) {
	r := parallelRig(t, fakediscord.Options{PerFiveSeconds: -1, NoAccess: []string{"900000000000000099"}})
	ada, to := r.fake.Person(ada, channel, guild, "en-US"), platform.Chat{ID: channel}
	nothing := func(context.Context, string) (bool, error) { return false, nil }
	begin := time.Now()
	asked := ada.Say("a red fox", "")
	post := platform.Post{ID: "p", Text: "a *red* fox\nSeed 7", ReplyTo: asked, Files: []platform.Attachment{picture("a.png", []byte("1"))}}
	ids := must.Get(r.d.Send(r.ctx, to, post))(t)
	for n := range 120 {
		ada.Say(fmt.Sprint(n), "")
	}
	require.Equal(t, ids, must.Get(r.d.Recall(r.ctx, to, post, begin, nothing))(t))
	for name, other := range map[string]platform.Post{
		"other words":  {Text: "a red fox\nSeed 8", ReplyTo: asked, Files: post.Files},
		"another ask":  {Text: post.Text, ReplyTo: "900000000000000123", Files: post.Files},
		"without file": {Text: post.Text, ReplyTo: asked},
	} {
		require.Empty(t, must.Get(r.d.Recall(r.ctx, to, other, begin, nothing))(t), name)
	}
	require.Empty(t, must.Get(r.d.Recall(r.ctx, to, post, begin.Add(time.Hour), nothing))(t), "it is older")
	require.Empty(t, must.Get(r.d.Recall(r.ctx, to, post, begin, func(_ context.Context, message string) (bool, error) {
		return message == ids[0], nil
	}))(t), "it is known to be another one")
	_, err := r.d.Recall(r.ctx, platform.Chat{ID: "900000000000000099"}, post, begin, nothing)
	require.True(t, platform.Permanent(err))
	for n := range maxPages * pageOf {
		ada.Say(fmt.Sprint(n), "")
	}
	_, err = r.d.Recall(r.ctx, to, post, begin, nothing)
	require.True(t, platform.Permanent(err), "it is not read without an end")
	require.Empty(t, r.fake.Violations())
}
