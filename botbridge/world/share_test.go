package world_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// awaitDay waits for the next day if this one ends soon, because each day brings
// new shares.
func awaitDay(t *testing.T) {
	t.Helper()
	const enough = 3 * time.Minute
	left := time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour))
	if left > enough {
		return
	}
	t.Logf("the day ends in %v", left)
	select {
	case <-time.After(left + time.Second):
	case <-t.Context().Done():
	}
}

func TestPicturesADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		awaitDay(t)
		r := newRig(t, func(o *options) {
			o.Config = strings.ReplaceAll(botYAML, "limits:", "limits:\n  pictures_per_day: 3") + "  dear: {workflow: work.json, inputs: {seed: Work.nonce}, price: 3}\n"
		})
		ada, bob, admin := r.Fake.Person(30, "en"), r.Fake.Person(31, "en"), r.Fake.Person(1, "en")
		stopped, _ := ada.Say("/endless")
		status := r.waitFor(ada, "the status", answering(stopped, func(fakebot.Message) bool { return true }))
		ada.Press(status.ID, button(t, status, "Cancel"))
		r.waitFor(ada, "stopped", answering(stopped, saying("Stopped.")))
		asked, _ := ada.Say("/poster -n 2")
		r.pictures(ada, asked, 2)
		// A stopped request costs nothing. Its price is given back right after the reply.
		r.askUntil(ada, "/status", "used 2 of 3")
		asked, _ = ada.Say("/dear")
		r.waitFor(ada, "too dear", answering(asked, saying("That's your limit for today (3)")))
		asked, _ = bob.Say("/dear")
		r.pictures(bob, asked, 1)
		admin.Say("/quota 30 10")
		r.waitFor(admin, "the share", saying("Daily limit for telegram:30: 10"))
		asked, _ = ada.Say("/dear")
		r.pictures(ada, asked, 1)
	})
}

func TestGPUSecondsADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		awaitDay(t)
		r := newRig(t, func(o *options) {
			o.Config = strings.ReplaceAll(botYAML, "limits:", "limits:\n  gpu_seconds_per_day: 1")
		})
		ada, admin := r.Fake.Person(30, "en"), r.Fake.Person(1, "en")
		asked, _ := ada.Say("/work")
		r.pictures(ada, asked, 1)
		// The GPU time is settled right after the picture.
		r.until("something is used up", func() bool {
			asked, _ := ada.Say("/status")
			share := r.waitFor(ada, "the share", answering(asked, saying("You've used ")))
			return !strings.Contains(share.Text, "used 0 of 1")
		})
		asked, _ = ada.Say("/work")
		r.waitFor(ada, "nothing is left", answering(asked, saying("That's your limit for today (1)")))
		for range 2 {
			asked, _ = admin.Say("/work")
			r.pictures(admin, asked, 1)
		}
	})
}

// If no machine can make a picture, the bot says so, and makes it once a machine
// is there.
func TestNoMachineIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ada := r.Fake.Person(32, "ru")
		asked, _ := ada.Say("/work")
		r.pictures(ada, asked, 1)
		for _, c := range r.w.Comfys {
			c.Kill()
		}
		asked, _ = ada.Say("/work")
		r.waitFor(ada, "why it waits, in the status message", answering(asked, saying("ни один сервер не на связи")))
		why, _ := ada.Say("/why")
		r.waitFor(ada, "why it waits", answering(why, saying("ни один сервер не на связи")))
		for _, c := range r.w.Comfys {
			c.Restart()
		}
		r.pictures(ada, asked, 1)
	})
}
