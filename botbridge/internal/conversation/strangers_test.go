package conversation

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestPrivateBotIsSilentInForeignGroups(t *testing.T) {
	r := parallelRig(t, limits.Config{AllowUsers: []string{"telegram:5"}, AllowChats: []string{"telegram:-7"}})
	r.event("6", "-9", platform.Said, "m1", "/help")
	require.Empty(t, r.p.in("-9"), "nobody there asked for it")
	r.event("5", "-9", platform.Said, "m2", "/help")
	require.Len(t, r.p.in("-9"), 1, "its user may use it there")
	r.event("6", "6", platform.Said, "m3", "/help")
	require.Contains(t, r.p.in("6")[0], "telegram:6", "whom to ask, and for which id")
	r.event("6", "-7", platform.Said, "m4", "/help")
	require.Len(t, r.p.in("-7"), 1)
}

func TestBroadcastReachesThoseWhoAreLetIn(t *testing.T) {
	r := parallelRig(t, limits.Config{AllowUsers: []string{"telegram:5", "telegram:8", "telegram:9"}, AllowChats: []string{"telegram:-7"}, Admins: []string{"telegram:1"}})
	r.event("5", "5", platform.Said, "m", "/help")  // stays
	r.event("6", "6", platform.Said, "m", "/help")  // a stranger
	r.event("6", "-7", platform.Said, "m", "/help") // an allowed group
	r.event("6", "-9", platform.Said, "m", "/help") // a foreign group
	r.event("8", "8", platform.Said, "m", "/help")  // blocks the bot
	r.event("9", "9", platform.Said, "m", "/help")  // is banned later
	r.event("8", "8", platform.Left, "", "")
	r.event("1", "1", platform.Said, "m", "/ban 9")
	// As an older version has noted it.
	require.NoError(t, r.store.Chats.Meet(r.ctx, "telegram|private|6", ""))
	r.event("1", "1", platform.Said, "m", "/broadcast Hello.")
	require.Eventually(t, func() bool { return r.heard("1") == "Your message has reached 3 of 5 chats." }, time.Minute, 5*time.Millisecond)
	said := r.p.in("1")
	require.Equal(t, []string{"Sending to 5 chats.", "Hello.", "Your message has reached 3 of 5 chats."}, said[len(said)-3:])
	for chat, want := range map[string]bool{"1": true, "5": true, "-7": true, "6": false, "-9": false, "8": false, "9": false} {
		if want {
			require.Contains(t, r.p.in(chat), "Hello.", chat)
		} else {
			require.NotContains(t, r.p.in(chat), "Hello.", chat)
		}
	}
	// A chat that turns out to be closed leaves the list.
	r.p.mu.Lock()
	r.p.fail["5"] = platform.ErrForbidden
	r.p.mu.Unlock()
	r.event("1", "1", platform.Said, "m", "/broadcast Again.")
	require.Eventually(t, func() bool {
		return len(must.Get(r.store.Chats.All(r.ctx))(t)) == 4
	}, time.Minute, 5*time.Millisecond)
	// It is on the list again once its user comes back.
	r.p.mu.Lock()
	delete(r.p.fail, "5")
	r.p.mu.Unlock()
	r.event("5", "5", platform.Said, "m9", "/help")
	require.Contains(t, must.Get(r.store.Chats.All(r.ctx))(t), "telegram|private|5")
}

// Data names a request of one's own, the message is another's: nothing happens to it.
func TestForgedUnderAnothersPicture(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		request.VerbDeleteNow, request.VerbDelete, request.VerbMore, request.VerbCancel, verbForget, verbMy, verbBetter, verbNone, verbAccept,
	} {
		t.Run(data, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, limits.Config{})
			mine, theirs := r.pictured("5", "-9"), "7f000000-0000-4000-8000-000000000001"
			require.NoError(t, r.store.Put(r.ctx, request.MessageKind, request.MessageName("telegram", "-9", "hers"), theirs, request.MessageKeep))
			r.pressed("5", "-9", "hers", request.ButtonData(data, mine))
			sent, edits := r.sent()
			require.Empty(t, sent)
			require.Empty(t, edits)
			require.Empty(t, r.p.gone)
			r.record(mine)
		})
	}
}

// What the bridge shows somebody with buttons is theirs: another's forged press changes
// none of it.
func TestForgedUnderAnothersMenu(t *testing.T) {
	t.Parallel()
	for name, show := range map[string]func(r *rig, hers string){
		"a menu":     func(r *rig, hers string) { r.tap("6", "-9", request.VerbMore, hers) },
		"styles":     func(r *rig, _ string) { r.answer("6", "-9", "her picture", "/styles") },
		"a question": func(r *rig, _ string) { r.answer("6", "-9", "her picture", "/delete") },
		"her list":   func(r *rig, _ string) { r.event("6", "-9", platform.Said, "m1", "/my") },
		"settings":   func(r *rig, _ string) { r.event("6", "-9", platform.Said, "m1", "/settings") },
		"an offer":   func(r *rig, _ string) { r.event("6", "-9", platform.Said, "m1", "/enhance a wolf") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, limits.Config{Messages: 1000})
			r.styled()
			r.words(Enhance{})
			mine, hers := r.pictured("5", "-9"), r.pictured("6", "-9")
			require.NoError(t, r.store.Put(r.ctx, request.MessageKind, request.MessageName("telegram", "-9", "her picture"), hers, request.MessageKeep))
			show(r, hers)
			posts, _ := r.sent()
			require.Len(t, posts, 1)
			require.NotEmpty(t, posts[0].Buttons)
			press := func(user, data string) (edits []platform.Post) {
				r.pressed(user, "-9", "b1", data)
				_, edits = r.sent()
				return edits
			}
			for _, verb := range []string{request.VerbBack, request.VerbStyles, request.VerbDelete, request.VerbDeleteNow, request.VerbStatus} {
				require.Empty(t, press("5", request.ButtonData(verb, mine)), verb)
			}
			require.Empty(t, press("5", verbSet+":5:lang:ru"))
			require.Empty(t, r.p.gone)
			// Her own presses do.
			rows := slices.DeleteFunc(posts[0].Buttons, func(row []platform.Button) bool {
				return strings.HasPrefix(row[0].Data, verbGroup+":") // for moderators
			})
			row := rows[len(rows)-1]
			require.Len(t, press("6", row[len(row)-1].Data), 1)
		})
	}
}

// Data is right, but the message has no buttons, so there is no note of it: nothing happens
// to it.
func TestPressOnAMessageWithoutButtons(t *testing.T) {
	type row struct {
		chat   string
		data   func(mine string) string
		change func(rec *request.Record)
		acts   bool
	}
	beside.Cases(t, map[string]row{
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
	}, func(t *testing.T, c row) {
		r := newRig(t, limits.Config{Admins: []string{"telegram:5"}})
		mine := r.pictured("5", c.chat)
		r.change(mine, func(rec *request.Record) {
			rec.Status = "status"
			if c.change != nil {
				c.change(rec)
			}
		})
		r.pressed("5", c.chat, "plain", c.data(mine))
		posts, edits := r.sent()
		require.Equal(t, c.acts, len(posts)+len(edits)+len(r.p.gone) > 0)
	})
}

// A press may be faster than the note of its message.
func TestPressBeforeTheNote(t *testing.T) {
	r := parallelRig(t, limits.Config{})
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
	r := parallelRig(t, limits.Config{})
	hers := r.pictured("6", "-9")
	r.pressed("5", "-9", "pic", request.ButtonData(request.VerbStatus, hers))
	require.Empty(t, r.p.gone)
}

// exported is what /export sends.
func (r *rig) exported(user string) (p personal) {
	r.t.Helper()
	r.event(user, user, platform.Said, "x", "/export")
	last := r.p.posts[len(r.p.posts)-1]
	require.Len(r.t, last.Files, 1)
	require.NoError(r.t, json.NewDecoder(must.Get(last.Files[0].Open(r.ctx))(r.t)).Decode(&p))
	return p
}

// A user gets all that is kept about them, of nobody else, and can have it deleted.
func TestExportAndForget(t *testing.T) {
	r := parallelRig(t, limits.Config{Pictures: 10, Messages: 100})
	r.words(Enhance{})
	mine, others := r.made("generate", "5", "5"), r.made("generate", "6", "6")
	require.NoError(t, r.store.Put(r.ctx, settingsKind, "telegram:5", Settings{Language: "en", AsFile: true}, 0))
	require.NoError(t, r.talk.o.Guard.SetShare(r.ctx, "telegram:5", 7))
	for _, star := range []state.Star{{Request: mine, Words: "a fox"}, {Request: others, Words: "another fox"}} {
		must.Get(r.store.People.Toggle(r.ctx, "telegram:5", star.ID(), star))(t)
	}
	r.event("5", "5", platform.Said, "m1", "/generate a bear")
	r.event("5", "5", platform.Said, "m2", "/generate a wolf --enhance")
	r.event("5", "-9", platform.Said, "m3", "/generate")
	r.event("5", "5", platform.Said, "m4", "/my a secret")
	r.event("5", "5", platform.Said, "m5", "/my a secret")

	p := r.exported("5")
	require.Equal(t, "telegram:5", p.Who)
	require.JSONEq(t, `{"language": "en", "as_file": true}`, string(p.Settings))
	require.JSONEq(t, "7", string(p.Share))
	require.EqualValues(t, 1, p.Spent)
	require.Len(t, p.Waiting, 3, "an offer, a question in a group, and a search")
	require.Len(t, p.Favourites, 2)
	var prompts []string
	for _, rec := range p.Requests {
		prompts = append(prompts, rec.Args.Prompt)
		require.Empty(t, rec.Graph)
	}
	require.ElementsMatch(t, []string{"a fox", "a bear"}, prompts)

	for text, want := range map[string]string{"/forget": "/forget me - I'll delete", "/forget you": "/forget me - I'll delete", "/forget me": "Delete what I keep about you"} {
		r.event("5", "5", platform.Said, "m3", text)
		require.Contains(t, r.heard("5"), want)
	}
	id := request.IDOf("forget/telegram:5")
	r.press("6", "5", verbForget, id)
	_, err := r.talk.o.Runner.Load(r.ctx, mine)
	require.NoError(t, err, "nobody else may press that")
	for range 2 {
		r.press("5", "5", verbForget, id)
	}
	_, edits := r.sent() // those of the status messages come by themselves
	require.True(t, slices.ContainsFunc(edits, func(p platform.Post) bool {
		return strings.Contains(p.Text, "Deleted, along with 1 finished request.\n1 request isn't finished yet")
	}), "%v", edits)
	p = r.exported("5")
	require.Empty(t, p.Settings)
	require.Empty(t, p.Waiting)
	require.Empty(t, p.Favourites)
	require.JSONEq(t, "7", string(p.Share), "what an operator has decided")
	require.EqualValues(t, 1, p.Spent, "and what was used of it")
	require.Len(t, p.Requests, 1)
	require.Equal(t, "a bear", p.Requests[0].Args.Prompt)
	_, err = r.talk.o.Runner.Load(r.ctx, others)
	require.NoError(t, err, "what others made is theirs")
}

// In a group, neither shows anything.
func TestExportIsPrivate(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.event("5", "-9", platform.Said, "m1", "/export")
	r.event("5", "-9", platform.Said, "m2", "/forget me")
	require.Len(t, r.p.posts, 2)
	for _, text := range r.p.in("-9") {
		require.Contains(t, text, "Others can read this chat.")
	}
}

// What does not fit into a file is left out from its oldest end.
func TestExportFits(t *testing.T) {
	t.Parallel()
	p := personal{Who: "telegram:5"}
	for range 100 {
		p.Requests = append(p.Requests, request.NewRecord("x"))
	}
	p.Requests[99].ID = "newest"
	doc := must.Get(p.fit(10_000))(t)
	require.Less(t, len(doc), 10_000)
	var read personal
	require.NoError(t, json.Unmarshal(doc, &read))
	require.Equal(t, 100, len(read.Requests)+read.LeftOut)
	require.Equal(t, "newest", read.Requests[len(read.Requests)-1].ID)
}
