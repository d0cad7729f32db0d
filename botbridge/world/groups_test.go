package world_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// Who calls the bot by name in a group is heard although the bot does not know its name yet.
func TestNameIsNotKnownYet(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var away atomic.Bool
		r := newRig(t, func(o *options) {
			o.Fake.Fault = func(method string) fakebot.Fault {
				if method == "getMe" && away.Load() {
					return fakebot.Broken
				}
				return fakebot.None
			}
		})
		r.Bridge.Kill()
		away.Store(true)
		ada := r.Fake.Person(83, "en").In(-601)
		asked, _ := ada.Say("a red fox @" + fakebot.Username)
		r.Bridge.Start(t)
		time.Sleep(time.Minute)
		away.Store(false)
		r.pictures(ada, asked, 1)
	})
}

// A moderator sets the bot's language in a group and switches a command off, which holds in
// every topic, until the bot is removed from the group.
func TestModeratorsSetUpTheirGroup(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		const group = -600
		r.Fake.Moderate(81)
		member, moderator := r.Fake.Person(80, "en").In(group), r.Fake.Person(81, "en").In(group)
		member.Say("/settings@" + fakebot.Username)
		settings := r.waitFor(member, "settings", fakebot.Saying("Settings"))
		open := button(t, settings, "This group")
		require.Contains(t, r.answered(member.Press(settings.ID, open)), "Only moderators")
		r.answered(moderator.Press(settings.ID, open))
		menu := r.waitFor(moderator, "the menu", fakebot.Saying("Settings of this group"))
		require.Contains(t, r.answered(member.Press(menu.ID, button(t, menu, "Русский"))), "Only moderators")
		require.Equal(t, "Saved.", r.answered(moderator.Press(menu.ID, button(t, menu, "✓ /endless"))))
		require.Equal(t, "Сохранено.", r.answered(moderator.Press(menu.ID, button(t, menu, "Русский"))))
		r.waitFor(moderator, "the menu in Russian", fakebot.Saying("Настройки этой группы"))
		asked, _ := member.Send(fakebot.Draft{Text: "/endless", Topic: 9})
		r.waitFor(member, "the refusal", fakebot.Answering(asked, fakebot.Saying("отключили /endless")))
		require.Contains(t, r.Fake.Menu(80, "en"), "endless")
		require.Eventually(t, func() bool { return !slices.Contains(r.Fake.Menu(group, "en"), "endless") }, time.Minute, 10*time.Millisecond)

		r.Fake.Block(group, true)
		r.Fake.Block(group, false)
		asked, _ = member.Say("/queue")
		r.waitFor(member, "their own language", fakebot.Answering(asked, fakebot.Saying("Nothing in your queue")))
	})
}

// Groups become supergroups while the bridge is down and their members wait: one is told of
// by Telegram, the other only by the answer to a call.
func TestGroupBecomesSupergroup(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.Fake.Moderate(81)
		const one, two = -601, -602
		for _, group := range []int64{one, two} {
			moderator := r.Fake.Person(81, "en").In(group)
			moderator.Say("/settings")
			settings := r.waitFor(moderator, "settings", fakebot.Saying("Settings"))
			r.answered(moderator.Press(settings.ID, button(t, settings, "This group")))
			menu := r.waitFor(moderator, "the menu", fakebot.Saying("Settings of this group"))
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
			picture := r.waitFor(p, "the picture", fakebot.IsPicture)
			r.askUntil(p, "/queue", "В очереди у вас пусто") // in the language of the group
			require.Empty(t, r.answered(p.Press(picture.ID, button(t, picture, "Подробнее"))), "its buttons work")
			require.Len(t, fakebot.Filter(p.All(), fakebot.IsPicture), 1)
		}
	})
}

// A group writes more commands than Telegram lets the bot answer in minutes. Private
// chats and buttons do not notice, and the group is told what is left out.
func TestBusyGroup(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Fake.Scale = 1 // Telegram's own limits
			o.Config = strings.ReplaceAll(botYAML, "rate: 10", "rate: 1")
		})
		const group = -600
		ada := r.Fake.Person(31, "en")
		asked, _ := ada.Say("/endless")
		status := r.waitFor(ada, "the status", fakebot.Answering(asked, func(m fakebot.Message) bool { return len(m.Buttons) > 0 }))
		for n := range 80 {
			r.Fake.Person(int64(1000+n), "en").In(group).Say(fmt.Sprintf("/work %d", n))
		}
		here := ada.In(group)
		r.waitFor(here, "what is left out", fakebot.Saying("too much at once"))
		begin := time.Now()
		r.answered(ada.Press(status.ID, button(t, status, "Status")))
		pressed := time.Since(begin)
		question, _ := ada.Say("/help")
		r.waitFor(ada, "help", fakebot.Answering(question, fakebot.Saying("/generate")))
		t.Logf("a button took %v, both %v", pressed, time.Since(begin))
		require.Less(t, len(fakebot.Filter(here.All(), func(m fakebot.Message) bool { return m.FromBot })), 50, "the group still waits")
		over, _ := r.Fake.TooFast()
		require.Zero(t, over)
		require.NotContains(t, r.answered(ada.Press(status.ID, button(t, status, "Cancel"))), "isn't yours")
	})
}

func TestPicturesADay(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = strings.ReplaceAll(botYAML, "limits:", "limits:\n  pictures_per_day: 3") + "  dear: {workflow: work.json, inputs: {seed: Work.nonce}, price: 3}\n"
		})
		ada, bob, admin := r.Fake.Person(30, "en"), r.Fake.Person(31, "en"), r.Fake.Person(1, "en")
		stopped, _ := ada.Say("/endless")
		status := r.waitFor(ada, "the status", fakebot.Answering(stopped, func(fakebot.Message) bool { return true }))
		ada.Press(status.ID, button(t, status, "Cancel"))
		r.waitFor(ada, "stopped", fakebot.Answering(stopped, fakebot.Saying("Stopped.")))
		asked, _ := ada.Say("/poster -n 2")
		r.pictures(ada, asked, 2)
		// A stopped request costs nothing. Its price is given back right after the reply.
		r.askUntil(ada, "/status", "used 2 of 3")
		asked, _ = ada.Say("/dear")
		r.waitFor(ada, "too dear", fakebot.Answering(asked, fakebot.Saying("That's your limit for today (3)")))
		asked, _ = bob.Say("/dear")
		r.pictures(bob, asked, 1)
		admin.Say("/quota 30 10")
		r.waitFor(admin, "the share", fakebot.Saying("Daily limit for telegram:30: 10"))
		asked, _ = ada.Say("/dear")
		r.pictures(ada, asked, 1)
	})
}

func TestGPUSecondsADay(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = strings.ReplaceAll(botYAML, "limits:", "limits:\n  gpu_seconds_per_day: 1")
		})
		ada, admin := r.Fake.Person(30, "en"), r.Fake.Person(1, "en")
		asked, _ := ada.Say("/work")
		r.pictures(ada, asked, 1)
		// The GPU time is settled right after the picture.
		r.until("something is used up", func() bool {
			asked, _ := ada.Say("/status")
			share := r.waitFor(ada, "the share", fakebot.Answering(asked, fakebot.Saying("You've used ")))
			return !strings.Contains(share.Text, "used 0 of 1")
		})
		asked, _ = ada.Say("/work")
		r.waitFor(ada, "nothing is left", fakebot.Answering(asked, fakebot.Saying("That's your limit for today (1)")))
		for range 2 {
			asked, _ = admin.Say("/work")
			r.pictures(admin, asked, 1)
		}
	})
}

// If no machine can make a picture, the bot says so, and makes it once a machine
// is there.
func TestNoMachineIsThere(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		ada := r.Fake.Person(32, "ru")
		asked, _ := ada.Say("/work")
		r.pictures(ada, asked, 1)
		for _, c := range r.w.Comfys {
			c.Kill()
		}
		asked, _ = ada.Say("/work")
		r.waitFor(ada, "why it waits, in the status message", fakebot.Answering(asked, fakebot.Saying("ни один сервер не на связи")))
		why, _ := ada.Say("/why")
		r.waitFor(ada, "why it waits", fakebot.Answering(why, fakebot.Saying("ни один сервер не на связи")))
		for _, c := range r.w.Comfys {
			c.Restart()
		}
		r.pictures(ada, asked, 1)
	})
}

// What is below More, from outside: what made a picture, its workflow, another style, other
// words, and its removal, which a kill in between does not stop.
func TestMoreAboutAPicture(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = botYAML + "styles:\n  film: {prompt: \"{prompt}, 35mm film\", arguments: {cfg: 4}}\n"
		})
		ada := r.Fake.Person(50, "en")
		asked, _ := ada.Say("/generate a red fox --steps 2 --seed 11")
		picture := r.pictures(ada, asked, 1)[0]
		ada.Press(picture.ID, button(t, picture, "More"))
		menu := r.waitFor(ada, "the menu", fakebot.Answering(picture.ID, fakebot.Saying("Took ")))
		for _, want := range []string{"a red fox", "Seed 11", "2 steps", "Model: "} {
			require.Contains(t, menu.Text, want)
		}
		require.Contains(t, r.answered(ada.Press(menu.ID, button(t, menu, "Favourite"))), "Added to favourites")
		ada.Press(menu.ID, button(t, menu, "Workflow"))
		file := r.waitFor(ada, "the workflow", func(m fakebot.Message) bool { return m.Kind == "document" })
		require.NotZero(t, file.File.Size)

		ada.Press(menu.ID, button(t, menu, "Style"))
		styles := r.waitFor(ada, "the styles", fakebot.Saying("Which style would you like"))
		require.Equal(t, menu.ID, styles.ID, "in the same message")
		ada.Press(styles.ID, button(t, styles, "film"))
		require.Contains(t, r.pictures(ada, asked, 2)[1].Text, "film · Seed 11")

		words, _ := ada.Send(fakebot.Draft{Text: "/remix an owl", ReplyTo: picture.ID})
		other := r.pictures(ada, words, 1)[0]
		require.Contains(t, other.Text, "an owl")
		require.Contains(t, other.Text, "Seed 11")

		ada.Send(fakebot.Draft{Text: "/delete", ReplyTo: picture.ID})
		question := r.waitFor(ada, "the question", fakebot.Saying("Remove this picture"))
		r.Bridge.Kill()
		ada.Press(question.ID, button(t, question, "Yes"))
		r.Bridge.Start(t)
		r.wait(ada, "the picture and the question go", func(list []fakebot.Message) bool {
			return len(fakebot.Filter(list, func(m fakebot.Message) bool { return m.ID == picture.ID || m.ID == question.ID })) == 0
		})
		r.until("the picture is forgotten", func() bool {
			return strings.Contains(r.answered(ada.Press(menu.ID, button(t, menu, "Workflow"))), "no longer works")
		})
		r.Fake.Age(50)
		ada.Press(other.ID, button(t, other, "More"))
		menu = r.waitFor(ada, "its menu", fakebot.Answering(other.ID, fakebot.Saying("an owl")))
		ada.Press(menu.ID, button(t, menu, "Remove"))
		question = r.waitFor(ada, "the question", func(m fakebot.Message) bool { return m.ID == menu.ID && strings.Contains(m.Text, "Remove") })
		ada.Press(question.ID, button(t, question, "Yes"))
		r.waitFor(ada, "the truth", fakebot.Saying("Too old for me to remove"))
	})
}

// Four pictures come as one with numbers, whose buttons work after a restart.
func TestFourPictures(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = strings.NewReplacer("{workflow: generate.json,", "{workflow: generate.json, several: grid,",
				"edit: {workflow: edit.json,", "edit: {workflow: edit.json, varies: true,").Replace(botYAML)
		})
		ada := r.Fake.Person(40, "en")
		asked, _ := ada.Say("/generate a red fox -n 4 --ar 2:1 --steps 2")
		sheet := r.pictures(ada, asked, 1)[0]
		require.Contains(t, sheet.Text, "a red fox")
		require.Greater(t, sheet.File.Width, 1200, "two beside each other")
		r.wait(ada, "the status message goes", func(list []fakebot.Message) bool {
			return len(fakebot.Filter(list, fakebot.Answering(asked, func(m fakebot.Message) bool { return m.Kind == "text" }))) == 0
		})
		r.Bridge.Kill()
		r.Bridge.Start(t)
		ada.Press(sheet.ID, button(t, sheet, "U2"))
		large := r.pictures(ada, asked, 2)[1]
		require.Equal(t, 2*large.File.Height, large.File.Width+large.File.Width%2, "one picture by itself")
		ada.Press(sheet.ID, button(t, sheet, "V3"))
		other := r.pictures(ada, asked, 3)[2]
		require.Contains(t, other.Text, "a red fox", "the same words")
		require.Contains(t, r.answered(r.Fake.Person(41, "en").Press(sheet.ID, button(t, sheet, "V1"))), "no longer works", "it is of another chat")
	})
}
