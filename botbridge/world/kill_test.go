package world_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func TestBridgeKilled(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		const people = 8
		var all []*fakebot.Person
		asked := map[*fakebot.Person][]int{}
		for id := range people {
			p := r.Fake.Person(int64(100+id), "en")
			all = append(all, p)
			for range 3 {
				m, _ := p.Say("/work")
				asked[p] = append(asked[p], m)
			}
		}
		// The first picture is there. The others are at every stage of their way.
		r.wait(all[0], "a first picture", func(list []fakebot.Message) bool { return len(fakebot.Filter(list, fakebot.IsPicture)) > 0 })
		r.Bridge.Kill()
		late, _ := all[1].Say("/work")
		asked[all[1]] = append(asked[all[1]], late)
		r.Bridge.Start(t)
		for _, p := range all {
			for _, m := range asked[p] {
				r.wait(p, "an end", func(list []fakebot.Message) bool { return fakebot.Ends(list, m) > 0 })
			}
		}
		pictures := 0
		for _, p := range all {
			for _, m := range asked[p] {
				require.Equal(t, 1, fakebot.Ends(p.Sees(), m), fakebot.Texts(p.All()))
				n := len(fakebot.Filter(p.All(), fakebot.Answering(m, fakebot.IsPicture)))
				require.LessOrEqual(t, n, 1, "nobody gets it twice")
				pictures += n
			}
		}
		require.GreaterOrEqual(t, pictures, 3*people+1-people, "at most what was being sent at that moment is in doubt: one picture in each chat")
	})
}

func TestHubAway(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		ada := r.Fake.Person(5, "en")
		first, _ := ada.Say("/slow")
		r.waitFor(ada, "the status", fakebot.Answering(first, func(fakebot.Message) bool { return true }))
		r.w.Hubs[0].Kill()
		second, _ := ada.Say("/work")
		third, _ := ada.Say("/work")
		r.waitFor(ada, "the excuse", fakebot.Saying("can't reach the image servers"))
		for _, m := range []int{second, third} {
			r.waitFor(ada, "a word", fakebot.Answering(m, func(m fakebot.Message) bool {
				return strings.Contains(m.Text, "can't reach the image servers") || strings.Contains(m.Text, "as soon as the image servers are back")
			}))
		}
		require.Len(t, fakebot.Filter(ada.All(), fakebot.Saying("can't reach the image servers")), 1, "a chat is told once")
		r.w.Hubs[0].Start()
		for _, m := range []int{first, second, third} {
			r.pictures(ada, m, 1)
		}
		require.Len(t, fakebot.Filter(ada.All(), fakebot.IsPicture), 3)
	})
}

// Telegram is away while pictures are made and while the bridge starts.
func TestTelegramAway(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		ada := r.Fake.Person(6, "en")
		first, _ := ada.Say("/slow")
		r.waitFor(ada, "the status", fakebot.Answering(first, func(fakebot.Message) bool { return true }))
		r.StopTelegram()
		require.Eventually(t, func() bool {
			response, err := r.web().Get(r.w.Hubs[0].URL() + "/hub/stats")
			if err != nil {
				return false
			}
			defer response.Body.Close()
			var stats struct{ Queued, Running int }
			return json.NewDecoder(response.Body).Decode(&stats) == nil && stats.Queued+stats.Running == 0
		}, patience, 50*time.Millisecond, "the picture is made")
		r.Bridge.Kill()
		r.Bridge.Start(t)
		second, _ := ada.Say("/work")
		r.StartTelegram()
		for _, m := range []int{first, second} {
			r.wait(ada, "its end", func(list []fakebot.Message) bool { return fakebot.Ends(list, m) == 1 })
		}
		require.LessOrEqual(t, len(fakebot.Filter(ada.All(), fakebot.IsPicture)), 2, "nobody gets it twice")
	})
}

// The bridge is killed at each of its calls, after Telegram has taken it and before the
// bridge knows. Whatever is left in the chat is true, and nothing waits for ever.
func TestKilledAtEachCall(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var armed atomic.Pointer[string]
		taken := make(chan struct{}, 1)
		r := newRig(t, func(o *options) {
			o.Fake.Fault = func(method string) fakebot.Fault {
				if at := armed.Load(); at == nil || *at != method || !armed.CompareAndSwap(at, nil) {
					return fakebot.None
				}
				taken <- struct{}{}
				return fakebot.HangAfter
			}
		})
		for n, c := range []struct{ call, command string }{
			{"sendMessage", "/work"}, {"sendPhoto", "/work"}, {"deleteMessage", "/work"}, {"editMessageText", "/broken"}, {"sendMessage", "/broken"},
		} {
			ada := r.Fake.Person(int64(50+n), "en")
			armed.Store(&c.call)
			asked, _ := ada.Say(c.command)
			select {
			case <-taken:
			case <-time.After(patience):
				require.Failf(t, "no such call", "%s: %s", c.call, fakebot.Texts(ada.All()))
			}
			r.Bridge.Kill()
			r.Bridge.Start(t)
			last := r.wait(ada, c.call+": its end, and nothing that waits", func(list []fakebot.Message) bool {
				return fakebot.Ends(list, asked) == 1 && len(fakebot.Filter(list, func(m fakebot.Message) bool {
					return m.FromBot && strings.ContainsAny(m.Text, "⏳🎨")
				})) == 0 && len(fakebot.Filter(list, fakebot.Saying("👍 Got it"))) <= 1
			})
			notes := fakebot.Filter(last, fakebot.Saying("👍 Got it"))
			for _, note := range notes {
				// Its buttons tell how it is, and remove it.
				require.NotEmpty(t, r.answered(ada.Press(note.ID, button(t, note, "Status"))))
				r.wait(ada, "the note goes", func(list []fakebot.Message) bool {
					return len(fakebot.Filter(list, fakebot.Saying("👍 Got it"))) == 0
				})
			}
		}
	})
}

// A broadcast continues where a kill has cut it, and nobody gets it twice.
func TestBroadcastGoesOnAfterAKill(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			// At Telegram's own pace the broadcast takes seconds.
			o.Fake.Scale = 1
			o.Config = strings.ReplaceAll(botYAML, "rate: 10", "rate: 1")
		})
		const chats = 60
		var people []*fakebot.Person
		for n := range chats {
			p := r.Fake.Person(int64(200+n), "en")
			p.Say("/queue")
			people = append(people, p)
		}
		for _, p := range people {
			r.waitFor(p, "an answer", fakebot.Saying("Nothing in your queue"))
		}
		admin := r.Fake.Person(1, "en")
		news := fakebot.Saying("We are back.")
		heard := func() (n int) {
			for _, p := range people {
				n += len(fakebot.Filter(p.All(), func(m fakebot.Message) bool { return m.FromBot && news(m) }))
			}
			return n
		}
		begun, _ := admin.Say("/broadcast We are back.")
		r.wait(people[0], "the first", func([]fakebot.Message) bool { return heard() > 0 })
		r.Bridge.Kill()
		cut := heard()
		r.Bridge.Start(t)
		done := r.waitFor(admin, "the end", fakebot.Answering(begun, fakebot.Saying("Your message has reached")))
		t.Logf("cut after %d; %s", cut, done.Text)
		for _, p := range people {
			require.LessOrEqual(t, len(fakebot.Filter(p.All(), news)), 1, "nobody hears it twice")
		}
		require.GreaterOrEqual(t, heard(), chats-8, "at most those that were being told at that moment are left out")
	})
}

// Two bridges share one Redis. One acts, and the other continues where the first
// was killed. Neither disturbs the other's polling.
func TestStandbyTakesOver(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.bot("standby", r.Bridge.config)
		ada := r.Fake.Person(4, "en")
		var asked []int
		for range 4 {
			m, _ := ada.Say("/work")
			asked = append(asked, m)
		}
		r.pictures(ada, asked[0], 1)
		r.Bridge.Kill()
		late, _ := ada.Say("/work")
		for _, m := range append(asked, late) {
			r.wait(ada, "an end", func(list []fakebot.Message) bool { return fakebot.Ends(list, m) > 0 })
		}
		for _, m := range append(asked, late) {
			require.LessOrEqual(t, len(fakebot.Filter(ada.All(), fakebot.Answering(m, fakebot.IsPicture))), 1)
		}
	})
}

// While Redis is away, messages stay at Telegram and their author is told once.
// Everything is answered when Redis is back.
func TestRedisAway(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		ada := r.Fake.Person(4, "en")
		running, _ := ada.Say("/slow")
		r.waitFor(ada, "the status", fakebot.Answering(running, func(fakebot.Message) bool { return true }))
		r.w.Redis.Crash(false)
		first, _ := ada.Say("/work")
		second, _ := ada.Say("/work")
		r.waitFor(ada, "the excuse", fakebot.Saying("I'm having trouble on my side"))
		r.w.Redis.Start()
		for _, m := range []int{running, first, second} {
			r.pictures(ada, m, 1)
		}
		require.Len(t, fakebot.Filter(ada.All(), fakebot.Saying("I'm having trouble on my side")), 1, "told once")
		require.Len(t, fakebot.Filter(ada.All(), fakebot.IsPicture), 3)
	})
}
