package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// Data is right, but the message has no buttons, so there is no note of it: nothing happens
// to it.
func TestPressOnAMessageWithoutButtons(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		chat   string
		data   func(mine string) string
		change func(rec *request.Record)
		acts   bool
	}{
		"settings":                      {chat: "-9", data: func(string) string { return verbSet + ":5:lang:ru" }},
		"settings, alone":               {chat: "5", data: func(string) string { return verbSet + ":5:lang:ru" }, acts: true},
		"settings of the group":         {chat: "-9", data: func(string) string { return groupData("5", "lang", "ru") }},
		"removal":                       {chat: "-9", data: func(id string) string { return request.ButtonData(request.VerbDelete, id) }},
		"removal, now":                  {chat: "-9", data: func(id string) string { return request.ButtonData(request.VerbDeleteNow, id) }},
		"a menu":                        {chat: "-9", data: func(id string) string { return request.ButtonData(request.VerbMore, id) }},
		"a status":                      {chat: "-9", data: func(id string) string { return request.ButtonData(request.VerbStatus, id) }},
		"a status that may be lost":     {chat: "-9", data: func(id string) string { return request.ButtonData(request.VerbStatus, id) }, change: func(rec *request.Record) { rec.Tellings = 2 }, acts: true},
		"the status, whose note is old": {chat: "-9", data: func(id string) string { return request.ButtonData(request.VerbMore, id) }, change: func(rec *request.Record) { rec.Status = "plain" }, acts: true},
		"an old picture":                {chat: "-9", data: func(id string) string { return request.ButtonData(request.VerbMore, id) }, change: func(rec *request.Record) { rec.Outputs[0].Message = "plain" }, acts: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, limits.Config{Admins: []string{"telegram:5"}})
			mine := r.pictured("5", c.chat)
			var rec request.Record
			version, err := r.store.Requests.Load(r.ctx, mine, &rec)
			require.NoError(t, err)
			rec.Status = "status"
			if c.change != nil {
				c.change(&rec)
			}
			_, err = r.store.Requests.Save(r.ctx, mine, version, &rec)
			require.NoError(t, err)
			require.NoError(t, r.talk.Handle(r.ctx, platform.Event{
				ID: "press", Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: c.data(mine),
				User: platform.User{ID: "5"}, Chat: platform.Chat{ID: c.chat, Group: c.chat[0] == '-'}, Message: platform.Message{ID: "plain"},
			}))
			posts, edits := r.sent()
			require.Equal(t, c.acts, len(posts)+len(edits)+len(r.p.gone) > 0)
		})
	}
}

// A press may be faster than the note of its message.
func TestPressBeforeTheNote(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	done := make(chan error, 1)
	go func() {
		done <- r.talk.Handle(r.ctx, platform.Event{
			ID: "press", Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: verbSet + ":5:lang:ru",
			User: platform.User{ID: "5"}, Chat: platform.Chat{ID: "-9", Group: true}, Message: platform.Message{ID: "settings"},
		})
	}()
	r.noteUnder("-9", "settings", "5")
	require.NoError(t, <-done)
	_, edits := r.sent()
	require.Len(t, edits, 1)
}

// Nobody can have a picture removed by asking for its state there.
func TestStatusUnderAPicture(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	hers := r.pictured("6", "-9")
	require.NoError(t, r.talk.Handle(r.ctx, platform.Event{
		ID: "press", Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: request.ButtonData(request.VerbStatus, hers),
		User: platform.User{ID: "5"}, Chat: platform.Chat{ID: "-9", Group: true}, Message: platform.Message{ID: "pic"},
	}))
	require.Empty(t, r.p.gone)
}
