package telegram

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// Whom a message in a group is for, and who wrote it. The updates have the form of the
// Bot API's documentation.
func TestGroupMessages(t *testing.T) {
	t.Parallel()
	tg, _ := newTelegram(t, fakebot.Options{}, Options{})
	name := fakebot.Username
	tg.username.Store(&name)
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
		doc, err := json.Marshal(input(platform.Attachment{Media: media, Spoiler: true}, "a", "", nil))
		require.NoError(t, err)
		require.Contains(t, string(doc), `"has_spoiler":true`, media)
	}
}

// A voice message, a round video and a sticker are heard of, so that they get a word.
func TestWhatIsNoFile(t *testing.T) {
	t.Parallel()
	tg, _ := newTelegram(t, fakebot.Options{}, Options{})
	for body, want := range map[string]string{
		`"voice": {"file_id": "v", "file_unique_id": "v", "duration": 1, "mime_type": "audio/ogg"}`:                                                   platform.Voice,
		`"video_note": {"file_id": "v", "file_unique_id": "v", "duration": 1, "length": 240}`:                                                         platform.Voice,
		`"sticker": {"file_id": "s", "file_unique_id": "s", "type": "regular", "width": 512, "height": 512, "is_animated": false, "is_video": false}`: platform.Sticker,
	} {
		list := tg.decode([]json.RawMessage{json.RawMessage(`{"update_id": 1, "message": {"message_id": 3, "date": 1, "chat": {"id": 5, "type": "private"},
			"from": {"id": 5, "is_bot": false, "first_name": "Ada"}, ` + body + `}}`)})
		e, ok := tg.event(list[0])
		require.True(t, ok, body)
		require.Equal(t, []platform.File{{Type: want}}, e.Message.Files, body)
	}
}
