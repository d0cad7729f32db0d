package telegram

import (
	"bytes"
	"image"
	"image/png"
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
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

// The picture of a copy can be fetched as that of any other message. Somebody may answer to
// the copy before the bridge has noted whose it is.
func TestCopyOpens(t *testing.T) {
	t.Parallel()
	tg, fake := newTelegram(t, fakebot.Options{}, Options{})
	var data bytes.Buffer
	require.NoError(t, png.Encode(&data, image.NewGray(image.Rect(0, 0, 64, 64))))
	post := platform.Post{Files: []platform.Attachment{attachment("a.png", platform.Photo, data.String())}}
	ids, err := tg.Send(t.Context(), home, post)
	require.NoError(t, err)
	post.Copy = &platform.Original{Chat: home.ID, Message: ids[0]}
	_, err = tg.Send(t.Context(), home, post)
	require.NoError(t, err)
	require.Equal(t, 1, fake.Calls()["sendPhoto"])
	for _, m := range fake.Person(7, "en").All() {
		body, err := tg.Open(t.Context(), platform.File{ID: m.File.Hash + "-" + strconv.Itoa(m.ID)})
		require.NoError(t, err)
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		require.Equal(t, data.Bytes(), got)
	}
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
