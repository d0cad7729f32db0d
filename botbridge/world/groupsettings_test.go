package world_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// A moderator sets the bot's language in a group and switches a command off, which holds in
// every topic, until the bot is removed from the group.
func TestModeratorsSetUpTheirGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const group = -600
		r.Fake.Moderate(81)
		member, moderator := r.Fake.Person(80, "en").In(group), r.Fake.Person(81, "en").In(group)
		member.Say("/settings@" + fakebot.Username)
		settings := r.waitFor(member, "settings", saying("Settings"))
		open := button(t, settings, "This group")
		require.Contains(t, r.answered(member.Press(settings.ID, open)), "Only moderators")
		r.answered(moderator.Press(settings.ID, open))
		menu := r.waitFor(moderator, "the menu", saying("Settings of this group"))
		require.Contains(t, r.answered(member.Press(menu.ID, button(t, menu, "Русский"))), "Only moderators")
		require.Equal(t, "Saved.", r.answered(moderator.Press(menu.ID, button(t, menu, "✓ /endless"))))
		require.Equal(t, "Сохранено.", r.answered(moderator.Press(menu.ID, button(t, menu, "Русский"))))
		r.waitFor(moderator, "the menu in Russian", saying("Настройки этой группы"))
		asked, _ := member.Send(fakebot.Draft{Text: "/endless", Topic: 9})
		r.waitFor(member, "the refusal", answering(asked, saying("отключили /endless")))
		require.Contains(t, r.Fake.Menu(80, "en"), "endless")
		require.Eventually(t, func() bool { return !slices.Contains(r.Fake.Menu(group, "en"), "endless") }, time.Minute, 10*time.Millisecond)

		r.Fake.Block(group, true)
		r.Fake.Block(group, false)
		asked, _ = member.Say("/queue")
		r.waitFor(member, "their own language", answering(asked, saying("Nothing in your queue")))
	})
}
