package conversation

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// group returns what is stored of group -9.
func (r *rig) group() (g GroupSettings, err error) {
	return g, r.store.Get(r.ctx, groupKind, "telegram:-9", &g)
}

// regroup presses a button of the settings of a chat, below the /settings of user 5.
func (r *rig) regroup(user, chat, key, value string) {
	r.t.Helper()
	r.last++
	r.noteUnder(chat, "menu", "5")
	require.NoError(r.t, r.talk.Handle(r.ctx, platform.Event{
		ID: "press" + strconv.Itoa(r.last), Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: groupData("5", key, value),
		User: platform.User{ID: user, Language: "en"}, Chat: platform.Chat{ID: chat, Group: chat[0] == '-'}, Message: platform.Message{ID: "menu"},
	}))
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
	t.Parallel()
	for name, c := range map[string]struct {
		user, chat, key, value string
		changes                bool
	}{
		"a moderator":              {"9", "-9", "lang", "ru", true},
		"the operator":             {"1", "-9", "off", "inpaint", true},
		"a member":                 {"5", "-9", "lang", "ru", false},
		"in a private chat":        {"9", "9", "lang", "ru", false},
		"an unknown language":      {"9", "-9", "lang", "xx", false},
		"an unknown command":       {"9", "-9", "off", "nothing", false},
		"words for no words":       {"9", "-9", "usual", "inpaint", false},
		"an unknown setting":       {"9", "-9", "price", "0", false},
		"the menu changes nothing": {"9", "-9", "menu", "-", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
}

func TestGroupMenu(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
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
	t.Parallel()
	r := newRig(t, limits.Config{})
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
	t.Parallel()
	r := newRig(t, limits.Config{})
	id := r.pictured("5", "-9")
	before := r.prompts("5")
	r.regroup("9", "-9", "off", "generate")
	r.event("5", "-9", platform.Said, "m1", "/generate a fox")
	r.tap("5", "-9", request.VerbAgain, id)
	require.Equal(t, before, r.prompts("5"), "neither by a message nor by a button")
	said := r.p.in("-9")
	require.Equal(t, "The moderators of this group have turned /generate off.", said[len(said)-1])
	r.event("5", "5", platform.Said, "m2", "/generate a wolf")
	require.Contains(t, r.prompts("5"), "a wolf", "elsewhere it works")
	r.regroup("9", "-9", "on", "generate")
	r.event("5", "-9", platform.Said, "m3", "/generate a bear")
	require.Contains(t, r.prompts("5"), "a bear")
}

func TestPlainWordsOfAGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	draw, err := workflow.NewCommand("draw", workflow.Spec{}, []byte(`{"1": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}}}`))
	require.NoError(t, err)
	r.talk.commands.list = append(r.talk.commands.list, draw)
	r.talk.commands.byName["draw"], r.commands["draw"] = draw, draw
	r.regroup("9", "-9", "menu", "-")
	_, edits := r.sent()
	require.Contains(t, labels(edits[0]), "Plain words: /generate")
	r.regroup("9", "-9", "usual", "draw")
	e := r.message("5", "-9", "a fox", "")
	e.Addressed = true
	require.NoError(t, r.talk.Handle(r.ctx, e))
	require.NoError(t, r.talk.Handle(r.ctx, r.message("5", "5", "a wolf", "")))
	ids, err := r.store.Requests.ActiveOf(r.ctx, "telegram:5")
	require.NoError(t, err)
	made := map[string]string{}
	for _, id := range ids {
		rec, err := r.talk.o.Runner.Load(r.ctx, id)
		require.NoError(t, err)
		made[rec.Args.Prompt] = rec.Command
	}
	require.Equal(t, map[string]string{"a fox": "draw", "a wolf": "generate"}, made)
}

// Settings of a group end with the bot's membership, or a year after their last use.
func TestGroupSettingsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	old := time.Now().Add(-2 * groupRenew)
	require.NoError(t, r.store.Put(r.ctx, groupKind, "telegram:-9", GroupSettings{Language: "ru", Off: []string{"gone"}, Used: old}, groupKeep))
	r.event("5", "-9", platform.Said, "m1", "/queue")
	g, err := r.group()
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), g.Used, time.Minute, "use keeps them")
	require.Equal(t, "ru", g.Language)
	require.Empty(t, g.Off, "only what bot.yaml has is stored")
	names, err := r.store.Names(r.ctx, groupKind)
	require.NoError(t, err)
	require.Empty(t, names, "none is kept for ever")
	r.event("5", "-9", platform.Left, "", "")
	_, err = r.group()
	require.ErrorIs(t, err, state.ErrNotFound)
}
