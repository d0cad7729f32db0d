package conversation

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// group returns what is stored of group -9.
func (r *rig) group() (g GroupSettings, err error) {
	return g, r.store.Get(r.ctx, groupKind, "telegram:-9", &g)
}

// regroup presses a button of the settings of a chat, below the /settings of user 5.
func (r *rig) regroup(user, chat, key, value string) {
	r.t.Helper()
	r.noteUnder(chat, "menu", "5")
	r.pressed(user, chat, "menu", groupData("5", key, value))
}

func labels(p platform.Post) string {
	var list []string
	for _, row := range p.Buttons {
		for _, b := range row {
			list = append(list, b.Label)
		}
	}
	return strings.Join(list, "|")
}

func TestOnlyModeratorsChangeAGroup(t *testing.T) {
	type row struct {
		user, chat, key, value string
		changes                bool
	}
	beside.Cases(t, map[string]row{
		"a moderator":              {"9", "-9", "lang", "ru", true},
		"the operator":             {"1", "-9", "off", "inpaint", true},
		"a member":                 {"5", "-9", "lang", "ru", false},
		"in a private chat":        {"9", "9", "lang", "ru", false},
		"an unknown language":      {"9", "-9", "lang", "xx", false},
		"an unknown command":       {"9", "-9", "off", "nothing", false},
		"words for no words":       {"9", "-9", "usual", "inpaint", false},
		"an unknown setting":       {"9", "-9", "price", "0", false},
		"the menu changes nothing": {"9", "-9", "menu", "-", false},
	}, func(t *testing.T, c row) {
		r := newRig(t, limits.Config{Admins: []string{"telegram:1"}})
		r.regroup(c.user, c.chat, c.key, c.value)
		_, err := r.group()
		if c.changes {
			require.NoError(t, err)
			return
		}
		require.ErrorIs(t, err, state.ErrNotFound)
	})
}

func TestGroupMenu(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.event("5", "5", platform.Said, "m1", "/settings")
	posts, _ := r.sent()
	require.NotContains(t, labels(posts[0]), "This group", "others are not asked")
	r.event("5", "-9", platform.Said, "m2", "/settings")
	posts, _ = r.sent()
	require.Contains(t, labels(posts[len(posts)-1]), "This group")
	r.regroup("5", "-9", "menu", "-")
	_, edits := r.sent()
	require.Empty(t, edits)
	r.regroup("9", "-9", "menu", "-")
	r.regroup("9", "-9", "off", "inpaint")
	_, edits = r.sent()
	require.Contains(t, labels(edits[0]), "✓ Everyone's own|")
	require.Contains(t, labels(edits[0]), "✓ /generate|✓ /inpaint")
	require.Contains(t, labels(edits[len(edits)-1]), "✓ /generate|/inpaint")
}

// The language of the group is that of what is said there, and of nothing else.
func TestLanguageOfAGroup(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.regroup("9", "-9", "lang", "ru")
	r.event("5", "-9", platform.Said, "m1", "/queue")
	r.event("5", "5", platform.Said, "m2", "/queue")
	r.event("5", "-8", platform.Said, "m3", "/queue")
	require.Equal(t, []string{"В очереди у вас пусто."}, r.p.in("-9"))
	require.Equal(t, r.p.in("5"), r.p.in("-8"))
	r.event("5", "-9", platform.Said, "m4", "/settings")
	posts, _ := r.sent()
	require.Contains(t, labels(posts[len(posts)-1]), "✓ English", "their own stays")
	r.regroup("9", "-9", "lang", "-")
	r.event("5", "-9", platform.Said, "m5", "/queue")
	require.Equal(t, "Nothing in your queue.", r.p.in("-9")[len(r.p.in("-9"))-1])
}

func TestCommandSwitchedOff(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	id := r.pictured("5", "-9")
	before := r.prompts("5")
	r.regroup("9", "-9", "off", "generate")
	r.event("5", "-9", platform.Said, "m1", "/generate a fox")
	r.tap("5", "-9", request.VerbAgain, id)
	require.Equal(t, before, r.prompts("5"), "neither by a message nor by a button")
	require.Equal(t, "The moderators of this group have turned /generate off.", r.heard("-9"))
	r.event("5", "5", platform.Said, "m2", "/generate a wolf")
	require.Contains(t, r.prompts("5"), "a wolf", "elsewhere it works")
	r.regroup("9", "-9", "on", "generate")
	r.event("5", "-9", platform.Said, "m3", "/generate a bear")
	require.Contains(t, r.prompts("5"), "a bear")
}

func TestPlainWordsOfAGroup(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	draw := must.Get(workflow.NewCommand("draw", workflow.Spec{}, []byte(`{"1": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}}}`)))(t)
	r.talk.commands.list = append(r.talk.commands.list, draw)
	r.talk.commands.byName["draw"], r.commands["draw"] = draw, draw
	r.regroup("9", "-9", "menu", "-")
	_, edits := r.sent()
	require.Contains(t, labels(edits[0]), "Plain words go to /generate")
	r.regroup("9", "-9", "usual", "draw")
	e := r.message("5", "-9", "a fox", "")
	e.Addressed = true
	require.NoError(t, r.talk.Handle(r.ctx, e))
	require.NoError(t, r.talk.Handle(r.ctx, r.message("5", "5", "a wolf", "")))
	made := map[string]string{}
	for _, rec := range r.active("5") {
		made[rec.Args.Prompt] = rec.Command
	}
	require.Equal(t, map[string]string{"a fox": "draw", "a wolf": "generate"}, made)
}

// Settings of a group end with the bot's membership, or a year after their last use.
func TestGroupSettingsEnd(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	old := time.Now().Add(-2 * groupRenew)
	require.NoError(t, r.store.Put(r.ctx, groupKind, "telegram:-9", GroupSettings{Language: "ru", Off: []string{"gone"}, Used: old}, groupKeep))
	r.event("5", "-9", platform.Said, "m1", "/queue")
	g := must.Get(r.group())(t)
	require.WithinDuration(t, time.Now(), g.Used, time.Minute, "use keeps them")
	require.Equal(t, "ru", g.Language)
	require.Empty(t, g.Off, "only what bot.yaml has is stored")
	r.event("5", "-9", platform.Left, "", "")
	_, err := r.group()
	require.ErrorIs(t, err, state.ErrNotFound)
}

// Members may ask for so much in their group in a day; elsewhere the bot's own share is all
// that counts.
func TestDailyCapOfAGroup(t *testing.T) {
	r := parallelRig(t, limits.Config{Pictures: 100, Waiting: 100, Messages: 1000, Admins: []string{"telegram:1"}})
	r.regroup("9", "-9", "cap", "3")
	for range 3 {
		r.event("5", "-9", platform.Said, "m", "/generate a fox")
		r.event("1", "-9", platform.Said, "m", "/generate a fox")
	}
	require.Len(t, r.prompts("5"), 3)
	r.event("5", "-9", platform.Said, "m4", "/generate a fox")
	require.Len(t, r.prompts("5"), 3)
	require.Equal(t, "That's the daily limit for members of this group (3). It resets at midnight UTC.", r.heard("-9"))
	text := must.Get(r.talk.progress.capText(r.ctx, r.turn("5", "-9")))(t)
	require.Equal(t, "\nIn this group, you've used 3 of 3 today.", text)
	text = must.Get(r.talk.progress.capText(r.ctx, r.turn("5", "-8")))(t)
	require.Empty(t, text)
	r.event("1", "-9", platform.Said, "m5", "/generate a fox")
	require.Len(t, r.prompts("1"), 4, "the operators are free")
	r.event("5", "-8", platform.Said, "m6", "/generate a fox")
	r.event("5", "5", platform.Said, "m7", "/generate a fox")
	require.Len(t, r.prompts("5"), 5, "elsewhere there is more")
	r.move()
	r.event("5", "-1009", platform.Said, "m8", "/generate a fox")
	require.Len(t, r.prompts("5"), 5, "a new id of the group is no new day")
	r.regroup("9", "-1009", "cap", "-")
	r.event("5", "-1009", platform.Said, "m9", "/generate a fox")
	require.Len(t, r.prompts("5"), 6)
}

// turn is the turn of a message.
func (r *rig) turn(user, chat string) *turn {
	tn := must.Get(r.talk.turns.of(r.ctx, platform.Event{
		Platform: "telegram", User: platform.User{ID: user, Language: "en"}, Chat: platform.Chat{ID: chat, Group: chat[0] == '-'},
	}))(r.t)
	return tn
}

// Only what a button offers is stored; what an older bridge has stored is read, and stays.
func TestCapAndCoverAreStored(t *testing.T) {
	r := parallelRig(t, limits.Config{GPUSeconds: 1000, Messages: 1000})
	old := json.RawMessage(`{"language":"ru","usual":"generate","off":["inpaint"],"used":"` + "2000-01-01T00:00:00Z" + `"}`)
	require.NoError(t, r.store.Put(r.ctx, groupKind, "telegram:-9", old, groupKeep))
	for _, forged := range []string{"-3", "4", "x", "9999999999999999999", ""} {
		r.regroup("9", "-9", "cap", forged)
		r.regroup("9", "-9", "secs", forged)
	}
	r.regroup("9", "-9", "cap", "3")
	r.regroup("9", "-9", "secs", "300")
	r.p.covers = true
	r.regroup("9", "-9", "cover", "on")
	g := must.Get(r.group())(t)
	require.Equal(t, GroupSettings{Language: "ru", Usual: "generate", Off: []string{"inpaint"}, Pictures: 3, GPUSeconds: 300, Cover: true, Used: g.Used, Menu: g.Menu}, g)
	_, edits := r.sent()
	require.Contains(t, labels(edits[len(edits)-1]), "В день на участника: общий лимит бота|60 с в день|✓ 300 с в день|")
	require.Contains(t, labels(edits[len(edits)-1]), "✓ Прятать картинки под спойлер")
	require.NotContains(t, labels(edits[0]), "спойлер", "only where there is one")
}

// The pictures of a group are covered in it, from the moment when its moderators want that, and
// others when their author does.
func TestPicturesOfAGroupAreCovered(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.p.covers = true
	r.regroup("9", "-9", "cover", "on")
	r.event("5", "-9", platform.Said, "m1", "/generate a fox")
	r.event("5", "5", platform.Said, "m2", "/generate a wolf")
	r.event("5", "5", platform.Said, "m3", "/generate a bear --spoiler")
	covered := map[string]bool{}
	for _, rec := range r.active("5") {
		covered[rec.Args.Prompt] = rec.Cover
	}
	require.Equal(t, map[string]bool{"a fox": true, "a wolf": false, "a bear": true}, covered)
}

// /help shows in a group what works there.
func TestHelpLeavesOutWhatIsOff(t *testing.T) {
	r := parallelRig(t, limits.Config{Messages: 1000})
	r.styled()
	last := func(chat, text string) string {
		r.event("5", chat, platform.Said, "m", text)
		return r.heard(chat)
	}
	require.Contains(t, last("-9", "/styles"), "film")
	r.regroup("9", "-9", "off", "generate")
	for _, text := range []string{"/help", "/start"} {
		require.NotContains(t, last("-9", text), "/generate -")
		require.NotContains(t, last("-9", text), "/styles", "no command here has styles")
		require.Contains(t, last("-9", text), "/inpaint")
	}
	require.Contains(t, last("5", "/help"), "/generate -", "elsewhere it works")
	const off = "The moderators of this group have turned /generate off."
	require.Equal(t, off, last("-9", "/help generate"))
	require.Equal(t, off, last("-9", "/help /generate cfg"))
	require.NotContains(t, last("-9", "/styles"), "film")
	require.Contains(t, last("5", "/help generate"), "--cfg")
	r.regroup("9", "-9", "on", "generate")
	require.Contains(t, last("-9", "/help"), "/generate -")
}

// The menu of a group leaves out what is off there, also if it could not be set at first,
// and until the bot leaves.
func TestMenuOfAGroup(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	menu := func() (string, bool) {
		r.talk.Wait()
		r.p.mu.Lock()
		defer r.p.mu.Unlock()
		off, set := r.p.menus["-9"]
		return off, set
	}
	r.event("5", "-9", platform.Said, "m1", "/queue")
	r.regroup("9", "-9", "lang", "ru")
	_, set := menu()
	require.False(t, set, "the usual menu will do")

	r.p.fail["menu"] = errors.New("away")
	r.regroup("9", "-9", "off", "generate")
	_, set = menu()
	require.False(t, set)
	r.p.mu.Lock()
	delete(r.p.fail, "menu")
	r.p.mu.Unlock()
	clear(r.talk.menus.until) // a minute later, or after a restart
	r.event("5", "-9", platform.Said, "m2", "/queue")
	off, _ := menu()
	require.Equal(t, "generate", off)
	r.regroup("9", "-9", "off", "inpaint")
	off, _ = menu()
	require.Equal(t, "generate inpaint", off)

	r.p.mu.Lock()
	delete(r.p.menus, "-9")
	r.p.mu.Unlock()
	r.event("5", "-9", platform.Said, "m3", "/queue")
	_, set = menu()
	require.False(t, set, "it is set once")

	r.event("5", "-9", platform.Left, "", "")
	r.event("5", "-9", platform.Said, "m4", "/queue")
	off, set = menu()
	require.True(t, set, "what was left there is replaced")
	require.Empty(t, off)
	g, err := r.group()
	if err == nil {
		require.Empty(t, g.Menu)
		require.Empty(t, g.Off)
		return
	}
	require.ErrorIs(t, err, state.ErrNotFound)
}

// move is the event that group -9 is -1009 now.
func (r *rig) move() {
	r.t.Helper()
	r.last++
	require.NoError(r.t, r.talk.Handle(r.ctx, platform.Event{
		ID: "move", Platform: "telegram", Kind: platform.Moved, Chat: platform.Chat{ID: "-9", Group: true}, To: "-1009",
	}))
}

// The settings of a group stay when it gets a new id, whatever comes first and how often.
func TestSettingsMoveWithTheGroup(t *testing.T) {
	beside.Cases(t, map[string]func(r *rig){
		"once":                            func(r *rig) { r.move() },
		"twice":                           func(r *rig) { r.move(); r.move() },
		"the bot has left the old one":    func(r *rig) { r.event("5", "-9", platform.Left, "", ""); r.move() },
		"the bot leaves the old one then": func(r *rig) { r.move(); r.event("5", "-9", platform.Left, "", "") },
		"said there is only an answer": func(r *rig) {
			r.p.fail["-9"] = &platform.MovedError{To: "-1009"}
			r.event("5", "-9", platform.Said, "m", "/queue")
			r.move()
		},
	}, func(t *testing.T, c func(r *rig)) {
		r := newRig(t, limits.Config{AllowChats: []string{"telegram:-9"}})
		r.regroup("9", "-9", "lang", "ru")
		c(r)
		before := len(r.p.in("-1009"))
		r.event("5", "-1009", platform.Said, "m1", "/queue")
		require.Equal(t, []string{"В очереди у вас пусто."}, r.p.in("-1009")[before:])
		r.regroup("9", "-1009", "lang", "en")
		r.move()
		r.event("5", "-1009", platform.Said, "m2", "/queue")
		require.Equal(t, "Nothing in your queue.", r.p.in("-1009")[before+1], "what was chosen since is not lost")
		require.Equal(t, []string{"telegram|group|-1009"}, must.Get(r.store.Chats.All(r.ctx))(t), "broadcasts go there")
	})
}

// What is answered when the group has moved is said in the new chat, and its buttons work
// there.
func TestAnswerToAMovedGroup(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	id := r.pictured("5", "-9")
	r.p.fail["-9"] = &platform.MovedError{To: "-1009"}
	r.event("5", "-9", platform.Said, "m1", "/settings")
	posts, _ := r.sent()
	require.Len(t, posts, 1)
	require.Empty(t, posts[0].ReplyTo, "messages have other ids there")
	require.Equal(t, []string{posts[0].Text}, r.p.in("-1009"))
	r.move()
	r.tap("5", "-1009", "mo", id)
	posts, _ = r.sent()
	require.Len(t, posts, 1)
	require.Contains(t, posts[0].Text, "a fox", "its pictures have moved, too")
	require.Equal(t, []string{posts[0].Text}, r.p.in("-1009")[1:])
	require.Equal(t, []string{"b2"}, messagesOf(r.record(id)), "nothing is removed there by an old id")
}

// A blocked group stays blocked.
func TestBlockedGroupMoves(t *testing.T) {
	r := parallelRig(t, limits.Config{BlockChats: []string{"telegram:-9"}})
	r.move()
	r.event("5", "-1009", platform.Said, "m1", "/queue")
	require.Empty(t, r.p.in("-1009"))
}
