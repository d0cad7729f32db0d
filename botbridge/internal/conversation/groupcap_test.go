package conversation

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// Members may ask for so much in their group in a day; elsewhere the bot's own share is all
// that counts.
func TestDailyCapOfAGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{Pictures: 100, Waiting: 100, Messages: 1000, Admins: []string{"telegram:1"}})
	last := func(chat string) string {
		said := r.p.in(chat)
		return said[len(said)-1]
	}
	r.regroup("9", "-9", "cap", "3")
	for range 3 {
		r.event("5", "-9", platform.Said, "m", "/generate a fox")
		r.event("1", "-9", platform.Said, "m", "/generate a fox")
	}
	require.Len(t, r.prompts("5"), 3)
	r.event("5", "-9", platform.Said, "m4", "/generate a fox")
	require.Len(t, r.prompts("5"), 3)
	require.Equal(t, "That's the daily limit for members of this group (3). It resets at midnight UTC.", last("-9"))
	text, err := r.talk.progress.capText(r.ctx, r.turn("5", "-9"))
	require.NoError(t, err)
	require.Equal(t, "\nIn this group, you've used 3 of 3 today.", text)
	text, err = r.talk.progress.capText(r.ctx, r.turn("5", "-8"))
	require.NoError(t, err)
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
	tn, err := r.talk.turns.of(r.ctx, platform.Event{
		Platform: "telegram", User: platform.User{ID: user, Language: "en"}, Chat: platform.Chat{ID: chat, Group: chat[0] == '-'},
	})
	require.NoError(r.t, err)
	return tn
}

// Only what a button offers is stored; what an older bridge has stored is read, and stays.
func TestCapAndCoverAreStored(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{GPUSeconds: 1000, Messages: 1000})
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
	g, err := r.group()
	require.NoError(t, err)
	require.Equal(t, GroupSettings{Language: "ru", Usual: "generate", Off: []string{"inpaint"}, Pictures: 3, GPUSeconds: 300, Cover: true, Used: g.Used, Menu: g.Menu}, g)
	_, edits := r.sent()
	require.Contains(t, labels(edits[len(edits)-1]), "В день на участника: общий лимит бота|60 с в день|✓ 300 с в день|")
	require.Contains(t, labels(edits[len(edits)-1]), "✓ Прятать картинки под спойлер")
	require.NotContains(t, labels(edits[0]), "спойлер", "only where there is one")
}

// The pictures of a group are covered in it, from the moment when its moderators want that.
func TestPicturesOfAGroupAreCovered(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.p.covers = true
	r.regroup("9", "-9", "cover", "on")
	r.event("5", "-9", platform.Said, "m1", "/generate a fox")
	r.event("5", "5", platform.Said, "m2", "/generate a wolf")
	ids, err := r.store.Requests.ActiveOf(r.ctx, "telegram:5")
	require.NoError(t, err)
	covered := map[string]bool{}
	for _, id := range ids {
		var rec request.Record
		_, err := r.store.Requests.Load(r.ctx, id, &rec)
		require.NoError(t, err)
		covered[rec.Args.Prompt] = rec.Cover
	}
	require.Equal(t, map[string]bool{"a fox": true, "a wolf": false}, covered)
}
