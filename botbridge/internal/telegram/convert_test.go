package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/png"
	"io"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// Whom a message in a group is for, and who wrote it. The updates have the form of the
// Bot API's documentation.
func TestGroupMessages(t *testing.T) {
	tg, _ := parallel(t, fakebot.Options{}, Options{})
	name := fakebot.Username
	require.NoError(t, tg.know(t.Context()))
	const group = `"chat": {"id": -100, "type": "supergroup", "title": "G"}, "date": 1, "message_id": 3`
	const ada = `"from": {"id": 5, "is_bot": false, "first_name": "Ada"}`
	const anonymous = `"from": {"id": 1087968824, "is_bot": true, "first_name": "Group", "username": "GroupAnonymousBot"}`
	replyTo := func(username string) string {
		return `"reply_to_message": {` + group + `, "from": {"id": 9, "is_bot": true, "first_name": "B", "username": "` + username + `"}, "text": "x"}`
	}
	for body, want := range map[string]*platform.Event{
		ada + `, "text": "just talking"`:                                                                 nil,
		ada + `, "text": "a red fox, @` + name + `"`:                                                     {User: platform.User{ID: "5", Name: "Ada"}, Message: platform.Message{Text: "a red fox,"}, Addressed: true},
		ada + `, "text": "@COMFY_test_bot: a red fox"`:                                                   {User: platform.User{ID: "5", Name: "Ada"}, Message: platform.Message{Text: "a red fox"}, Addressed: true},
		ada + `, "text": "@another_bot a red fox"`:                                                       nil,
		ada + `, "text": "nice", ` + replyTo("another_bot"):                                              nil,
		ada + `, "text": "nice", ` + replyTo(name):                                                       {User: platform.User{ID: "5", Name: "Ada"}, Message: platform.Message{Text: "nice"}},
		anonymous + `, "sender_chat": {"id": -100, "type": "supergroup", "title": "G"}, "text": "/work"`: {User: platform.User{ID: "-100", Name: "G"}, Message: platform.Message{Text: "/work"}},
		anonymous + `, "sender_chat": {"id": -200, "type": "channel", "title": "C"}, "text": "/work"`:    nil,
	} {
		list := tg.decode([]json.RawMessage{json.RawMessage(`{"update_id": 1, "message": {` + group + `, ` + body + `}}`)})
		require.Len(t, list, 1)
		e, ok := tg.event(list[0])
		require.Equal(t, want != nil, ok, body)
		if want == nil {
			continue
		}
		require.Equal(t, want.User, e.User, body)
		require.Equal(t, want.Message.Text, e.Message.Text, body)
		require.Equal(t, want.Addressed, e.Addressed, body)
	}
}

// What is to be covered is covered in an album and in place of a message, too.
func TestSpoilersInAlbums(t *testing.T) {
	t.Parallel()
	for _, media := range []platform.Media{platform.Photo, platform.Video, platform.Animation} {
		doc := must.Get(json.Marshal(input(platform.Attachment{Media: media, Spoiler: true}, "a", "", nil)))(t)
		require.Contains(t, string(doc), `"has_spoiler":true`, media)
	}
}

// A voice message, a round video and a sticker are heard of, so that they get a word.
func TestWhatIsNoFile(t *testing.T) {
	tg, _ := parallel(t, fakebot.Options{}, Options{})
	require.NoError(t, tg.know(t.Context()))
	for body, want := range map[string]platform.File{
		`"voice": {"file_id": "v", "file_unique_id": "v", "duration": 1, "mime_type": "audio/ogg"}`:                                                   {ID: "v", Name: "voice.ogg", Type: platform.Voice},
		`"video_note": {"file_id": "v", "file_unique_id": "v", "duration": 1, "length": 240}`:                                                         {ID: "v", Name: "note.mp4", Type: platform.Voice},
		`"sticker": {"file_id": "s", "file_unique_id": "s", "type": "regular", "width": 512, "height": 512, "is_animated": false, "is_video": false}`: {Type: platform.Sticker},
	} {
		list := tg.decode([]json.RawMessage{json.RawMessage(`{"update_id": 1, "message": {"message_id": 3, "date": 1, "chat": {"id": 5, "type": "private"},
			"from": {"id": 5, "is_bot": false, "first_name": "Ada"}, ` + body + `}}`)})
		e, ok := tg.event(list[0])
		require.True(t, ok, body)
		require.Equal(t, []platform.File{want}, e.Message.Files, body)
	}
}

// What a chat shows already is copied, without an upload, and sent if it is gone.
func TestCopy(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{})
	post := platform.Post{Text: "a fox", Files: []platform.Attachment{attachment("a.png", platform.Document, "picture")}}
	ids := must.Get(tg.Send(t.Context(), home, post))(t)
	post.Copy, post.Text = &platform.Original{Chat: home.ID, Message: ids[0]}, "again"
	copied := must.Get(tg.Send(t.Context(), platform.Chat{ID: "8"}, post))(t)
	shown := fake.Person(8, "en").All()
	require.Len(t, shown, 1)
	require.Equal(t, copied[0], strconv.Itoa(shown[0].ID))
	require.Equal(t, "document", shown[0].Kind)
	require.Equal(t, "again", shown[0].Text)
	require.Equal(t, 1, fake.Calls()["sendDocument"])

	require.NoError(t, tg.Delete(t.Context(), home, ids[0]))
	must.Get(tg.Send(t.Context(), platform.Chat{ID: "8"}, post))(t)
	require.Equal(t, 2, fake.Calls()["sendDocument"])
}

// The picture of a copy can be fetched as that of any other message. Somebody may answer to
// the copy before the bridge has noted whose it is.
func TestCopyOpens(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{})
	var data bytes.Buffer
	require.NoError(t, png.Encode(&data, image.NewGray(image.Rect(0, 0, 64, 64))))
	post := platform.Post{Files: []platform.Attachment{attachment("a.png", platform.Photo, data.String())}}
	ids := must.Get(tg.Send(t.Context(), home, post))(t)
	post.Copy = &platform.Original{Chat: home.ID, Message: ids[0]}
	must.Get(tg.Send(t.Context(), home, post))(t)
	require.Equal(t, 1, fake.Calls()["sendPhoto"])
	for _, m := range fake.Person(7, "en").All() {
		body := must.Get(tg.Open(t.Context(), platform.File{ID: m.File.Hash + "-" + strconv.Itoa(m.ID)}))(t)
		got := must.Get(io.ReadAll(body))(t)
		require.NoError(t, body.Close())
		require.Equal(t, data.Bytes(), got)
	}
}

func TestWork(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{})
	for _, makes := range []platform.Media{"", platform.Photo, platform.Video, platform.Animation, platform.Audio, platform.Document} {
		require.NoError(t, tg.Work(t.Context(), home, makes), makes)
	}
	require.Equal(t, 6, fake.Calls()["sendChatAction"])
	require.NoError(t, tg.Work(t.Context(), platform.Chat{ID: "-9", Group: true}, platform.Photo))
	require.Equal(t, 6, fake.Calls()["sendChatAction"], "nothing that may count against a group's messages")
}

// A group has a menu of its own in every language, and loses it in every one.
func TestMenuOfAGroup(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{Commands: map[string][]Command{
		"": {{"draw", "a picture"}, {"film", "a film"}}, "ru": {{"draw", "картинка"}, {"film", "фильм"}},
	}})
	require.NoError(t, tg.introduceOnce(t.Context()))
	require.Equal(t, []string{"draw", "film"}, fake.Menu(-9, "ru"))
	group := platform.Chat{ID: "-9", Group: true}
	require.NoError(t, tg.Hide(t.Context(), group, []string{"film"}))
	for _, language := range []string{"ru", "en"} {
		require.Equal(t, []string{"draw"}, fake.Menu(-9, language))
		require.Equal(t, []string{"draw", "film"}, fake.Menu(-8, language), "other groups have the usual one")
	}
	require.NoError(t, tg.Hide(t.Context(), group, nil))
	require.Equal(t, []string{"draw", "film"}, fake.Menu(-9, "ru"))
	other := must.Get(New(Options{Token: fakebot.Token, Commands: map[string][]Command{"": {{"draw", "another line"}}}}))(t)
	require.NotEqual(t, tg.Menu(), other.Menu())
}

// A message that is gone was removed; one that is too old was not.
func TestDeleteIsHonest(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{})
	for _, old := range []bool{false, true} {
		ids := must.Get(tg.Send(t.Context(), home, platform.Post{Text: "x"}))(t)
		if old {
			fake.Age(7)
			require.ErrorIs(t, tg.Delete(t.Context(), home, ids[0]), platform.ErrRefused)
			continue
		}
		require.NoError(t, tg.Delete(t.Context(), home, ids[0]))
		require.NoError(t, tg.Delete(t.Context(), home, ids[0]))
	}
}

func TestModerates(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{})
	fake.Moderate(5)
	group := platform.Chat{ID: "-9", Group: true}
	for user, want := range map[string]bool{"5": true, "6": false, "-9": true, "x": false} {
		require.Equal(t, want, must.Get(tg.Moderates(t.Context(), group, user))(t), user)
	}
}

// A group becomes a supergroup: both service messages say the same, and so does the answer to
// each call.
func TestMigration(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{PollTimeout: time.Second})
	group := platform.Chat{ID: "-9", Group: true}
	ids := must.Get(tg.Send(t.Context(), group, platform.Post{Text: "x"}))(t)
	require.EqualValues(t, -1000000000009, fake.Migrate(-9, true))

	_, sent := tg.Send(t.Context(), group, platform.Post{Text: "x"})
	_, moderates := tg.Moderates(t.Context(), group, "5")
	for name, err := range map[string]error{
		"send": sent, "edit": tg.Edit(t.Context(), group, ids[0], platform.Post{Text: "y"}), "delete": tg.Delete(t.Context(), group, ids[0]),
		"moderates": moderates,
	} {
		var moved *platform.MovedError
		require.ErrorAs(t, err, &moved, name)
		require.Equal(t, "-1000000000009", moved.To)
	}

	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan platform.Event, 2)
	var listening sync.WaitGroup
	listening.Go(func() {
		_ = tg.Listen(ctx, func(_ context.Context, e platform.Event) error { events <- e; return nil })
	})
	defer listening.Wait()
	defer cancel()
	for range 2 {
		e := <-events
		require.Equal(t, platform.Moved, e.Kind)
		require.Equal(t, group, e.Chat)
		require.Equal(t, "-1000000000009", e.To)
	}
}
