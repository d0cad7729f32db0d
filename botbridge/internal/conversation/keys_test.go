//go:build unix

package conversation

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// After a conversation every key has an end, but for those that docs/bot.md names.
func TestKeysEnd(t *testing.T) {
	t.Parallel()
	db := redistest.Embedded(t)
	r := newRigOn(t, limits.Config{Admins: []string{"telegram:1"}, Pictures: 50, Messages: 1000}, state.New(db, state.Options{}))
	say := func(user, chat, text string) {
		r.event(user, chat, platform.Said, "m"+user+chat+text, text)
		require.NoError(t, r.store.Chats.Meet(r.ctx, "telegram|private|"+chat, user))
	}
	painted := r.painted("5", "5", "a fox")
	shared := r.painted("5", "-9", "a bear")
	for _, text := range []string{"/start", "a fox", "/generate a fox --steps 3", "/inpaint", "/my", "/settings", "/why", "/queue", "/cancel", "/models", "/export", "/nonsense"} {
		say("5", "5", text)
		say("9", "-9", text)
	}
	for _, text := range []string{"/quota telegram:5 9", "/ban telegram:6", "/ban telegram:7 3", "/allow telegram:8", "/broadcast news", "/stats"} {
		say("1", "1", text)
	}
	for _, data := range []string{"f1:" + painted, "mo:" + painted, "rx:" + painted, "ag:" + shared, "va:" + painted} {
		r.pressed("5", "5", "shown", data)
	}
	r.pressed("5", "5", "settings", "set:5:lang:ru")
	r.with(func(o *Options) { o.Terms = &Terms{Texts: map[string]string{"en": "Be kind."}, Version: "1"} })
	say("8", "8", "a fox")
	posts, _ := r.sent()
	asks := posts[len(posts)-1].Buttons
	r.pressed("8", "8", "terms", asks[len(asks)-1][0].Data)
	must.Get(r.store.Inbox.Admit(r.ctx, "telegram/1", "telegram|5", "event"))(t)
	require.NoError(t, r.store.Inbox.NotePart(r.ctx, "telegram|5", "album", "m", "part"))
	require.NoError(t, r.store.People.Hold(r.ctx, "telegram:5", "held", "x"))
	_, _, err := r.store.Broadcasts.Start(r.ctx, "unfinished", "news")
	require.NoError(t, err)
	must.Get(r.store.Usage.Count(r.ctx, "enhance", "telegram:5", "x", 9))(t)
	must.Get(r.store.Payments.Pay(r.ctx, state.Charge{ID: "c", Who: "telegram:5"}, "order", nil))(t)

	lasting := map[string]bool{}
	root, walked := db.Key(""), 0
	for _, key := range must.Get(db.Client().Keys(r.ctx, "*").Result())(t) {
		walked++
		if must.Get(db.Client().PTTL(r.ctx, key).Result())(t) < 0 {
			lasting[strings.TrimPrefix(key, root)] = true
		}
	}
	require.Greater(t, walked, 20, "this was no conversation")
	page := string(must.Get(os.ReadFile("../../../docs/bot.md"))(t))
	_, table, found := strings.Cut(page, "### Keys without an end\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n#")
	unused := 0
	for _, row := range regexp.MustCompile("`([a-z_]+:?[a-z]*:?)(\\*?)`").FindAllStringSubmatch(table, -1) {
		was := len(lasting)
		for key := range lasting {
			if key == row[1] || row[2] != "" && strings.HasPrefix(key, row[1]) {
				delete(lasting, key)
			}
		}
		if was == len(lasting) {
			t.Logf("no key is like %s", row[0])
			unused++
		}
	}
	require.Empty(t, lasting, "these keys stay for ever, and no table names them")
	require.Zero(t, unused)
	// What grows with each chat or command is forgotten with it.
	for _, key := range []string{"chats", "chat_users"} {
		require.Greater(t, must.Get(db.Client().PTTL(r.ctx, db.Key(key)).Result())(t), 300*24*time.Hour)
	}
}
