package world_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// Groups become supergroups while the bridge is down and their members wait: one is told of
// by Telegram, the other only by the answer to a call.
func TestGroupBecomesSupergroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Fake.Moderate(81)
		const one, two = -601, -602
		for _, group := range []int64{one, two} {
			moderator := r.Fake.Person(81, "en").In(group)
			moderator.Say("/settings")
			settings := r.waitFor(moderator, "settings", saying("Settings"))
			r.answered(moderator.Press(settings.ID, button(t, settings, "This group")))
			menu := r.waitFor(moderator, "the menu", saying("Settings of this group"))
			require.Equal(t, "Сохранено.", r.answered(moderator.Press(menu.ID, button(t, menu, "Русский"))))
		}
		r.Bridge.Kill()
		for _, group := range []int64{one, two} {
			r.Fake.Person(80, "en").In(group).Say("/slow")
		}
		member := r.Fake.Person(80, "en").In(r.Fake.Migrate(one, true))
		untold := r.Fake.Person(80, "en").In(r.Fake.Migrate(two, false))
		r.Bridge.Start(t)
		for _, p := range []*fakebot.Person{member, untold} {
			picture := r.waitFor(p, "the picture", isPicture)
			r.askUntil(p, "/queue", "В очереди у вас пусто") // in the language of the group
			require.Empty(t, r.answered(p.Press(picture.ID, button(t, picture, "Подробнее"))), "its buttons work")
			require.Len(t, filter(p.All(), isPicture), 1)
		}
	})
}
