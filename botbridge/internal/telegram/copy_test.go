package telegram

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// What a chat shows already is copied, without an upload, and sent if it is gone.
func TestCopy(t *testing.T) {
	t.Parallel()
	tg, fake := newTelegram(t, fakebot.Options{}, Options{})
	post := platform.Post{Text: "a fox", Files: []platform.Attachment{attachment("a.png", platform.Document, "picture")}}
	ids, err := tg.Send(t.Context(), home, post)
	require.NoError(t, err)
	post.Copy, post.Text = &platform.Original{Chat: home.ID, Message: ids[0]}, "again"
	copied, err := tg.Send(t.Context(), platform.Chat{ID: "8"}, post)
	require.NoError(t, err)
	shown := fake.Person(8, "en").All()
	require.Len(t, shown, 1)
	require.Equal(t, copied[0], strconv.Itoa(shown[0].ID))
	require.Equal(t, "document", shown[0].Kind)
	require.Equal(t, "again", shown[0].Text)
	require.Equal(t, 1, fake.Calls()["sendDocument"])

	require.NoError(t, tg.Delete(t.Context(), home, ids[0]))
	_, err = tg.Send(t.Context(), platform.Chat{ID: "8"}, post)
	require.NoError(t, err)
	require.Equal(t, 2, fake.Calls()["sendDocument"])
}

func TestWork(t *testing.T) {
	t.Parallel()
	tg, fake := newTelegram(t, fakebot.Options{}, Options{})
	for _, makes := range []platform.Media{"", platform.Photo, platform.Video, platform.Animation, platform.Audio, platform.Document} {
		require.NoError(t, tg.Work(t.Context(), home, makes), makes)
	}
	require.Equal(t, 6, fake.Calls()["sendChatAction"])
	require.NoError(t, tg.Work(t.Context(), platform.Chat{ID: "-9", Group: true}, platform.Photo))
	require.Equal(t, 6, fake.Calls()["sendChatAction"], "nothing that may count against a group's messages")
}
