package world_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// supergroup has message ids of its own, unlike all other chats.
const supergroup = -1_000_000_000_500

// noTrace fails if a chat still has a message that speaks of something that is over.
func (r *rig) noTrace(p *fakebot.Person) {
	r.t.Helper()
	r.wait(p, "nothing that waits", func(list []fakebot.Message) bool {
		return len(fakebot.Filter(list, func(m fakebot.Message) bool {
			return m.FromBot && (strings.ContainsAny(m.Text, "⏳🎨👍") || strings.Contains(m.Text, "Trying again"))
		})) == 0
	})
}

// The answer to an upload is lost, whether or not it arrived, or the bridge is killed before it
// hears of it: in the end the result is there once, and nobody is asked to look.
func TestLostAnswers(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		type plan struct {
			method string
			fault  fakebot.Fault
		}
		var armed atomic.Pointer[plan]
		taken := make(chan struct{}, 1)
		r := newRig(t, func(o *options) {
			o.Fake.Fault = func(method string) fakebot.Fault {
				if p := armed.Load(); p != nil && p.method == method && armed.CompareAndSwap(p, nil) {
					taken <- struct{}{}
					return p.fault
				}
				return fakebot.None
			}
		})
		n := int64(0)
		for _, c := range []struct {
			command, method string
			pictures        int
		}{{"/work", "sendPhoto", 1}, {"/poster -n 3", "sendMediaGroup", 3}, {"/work", "sendMessage", 1}} {
			for fault, kill := range map[fakebot.Fault]bool{
				fakebot.CutAfter: false, fakebot.CutBefore: false, fakebot.GatewayAfter: false, fakebot.Gateway: false, fakebot.HangAfter: true, fakebot.Hang: true,
			} {
				n++
				p := r.Fake.Person(300+n, "en")
				if n%2 == 0 {
					p = p.In(supergroup - n)
				}
				armed.Store(&plan{c.method, fault})
				asked, _ := p.Say(c.command)
				<-taken
				p.Mutter("somebody else writes")
				if kill {
					r.Bridge.Kill()
					r.Bridge.Start(t)
				}
				what := fmt.Sprint(c, fault)
				r.pictures(p, asked, c.pictures)
				r.noTrace(p)
				time.Sleep(time.Minute)
				require.Len(t, fakebot.Filter(p.All(), fakebot.IsPicture), c.pictures, "%s: %s", what, fakebot.Texts(p.All()))
				require.Empty(t, fakebot.Filter(p.All(), fakebot.Saying("the connection dropped before")), what)
			}
		}
	})
}

// storm is one run of TestFaults: one of so many calls to Telegram fails, by these dice.
type storm struct {
	chats, requests, kills, oneIn int
	seed                          uint64
}

// storms are the runs of TestFaults: COMFYHUB_BOT_FAULTS=full is for make bot-faults.
func storms() (list []storm) {
	size := storm{chats: 8, requests: 3, kills: 4}
	seeds := uint64(1)
	if os.Getenv("COMFYHUB_BOT_FAULTS") == "full" {
		size = storm{chats: 50, requests: 4, kills: 20}
		seeds = 3
	}
	for _, size.oneIn = range []int{10, 5} {
		for size.seed = range seeds {
			list = append(list, size)
		}
	}
	return list
}

// unlucky lets one of so many calls fail in every way that there is, and counts them.
type unlucky struct {
	mu     sync.Mutex
	dice   *rand.Rand
	oneIn  int
	failed map[fakebot.Fault]int
	over   bool
}

func (u *unlucky) fault(string) fakebot.Fault {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := fakebot.Fault(u.dice.IntN(int(fakebot.GatewayAfter)*u.oneIn) + 1)
	if u.over || f > fakebot.GatewayAfter {
		return fakebot.None
	}
	u.failed[f]++
	return f
}

// Many chats ask while calls fail and the bridge is killed again and again: nobody is left
// without a word, nobody gets a picture twice, and hardly anybody is told to look whether it is
// there.
func TestFaults(t *testing.T) {
	for _, s := range storms() {
		t.Run(fmt.Sprintf("one in %d, seed %d", s.oneIn, s.seed), s.run)
	}
}

func (s storm) run(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		bad := &unlucky{dice: rand.New(rand.NewPCG(7, 11+s.seed)), oneIn: s.oneIn, failed: map[fakebot.Fault]int{}}
		r := newRig(t, func(o *options) { o.Fake.Fault = bad.fault })
		asked := map[*fakebot.Person][]int{}
		var people []*fakebot.Person
		for n := range s.chats {
			p := r.Fake.Person(int64(1000+n), "en")
			switch n % 8 {
			case 3:
				p = p.In(supergroup - int64(n))
			case 6:
				p = p.In(int64(-500 - n))
			}
			people = append(people, p)
		}
		ctx, cancel := context.WithCancel(r.ctx)
		var writing sync.WaitGroup
		writing.Go(func() {
			for range s.requests {
				for n, p := range people {
					command := "/work"
					if n%5 == 4 {
						command = "/poster -n 2"
					}
					m, _ := p.Say(command)
					asked[p] = append(asked[p], m)
					p.Mutter("nobody tells the bot of this")
				}
				select {
				case <-time.After(20 * time.Second):
				case <-ctx.Done():
				}
			}
		})
		dice := rand.New(rand.NewPCG(3, 5+s.seed))
		for range s.kills {
			time.Sleep(time.Duration(dice.IntN(8000)) * time.Millisecond)
			r.Bridge.Kill()
			r.Bridge.Start(t)
		}
		writing.Wait()
		cancel()
		silent, twice, doubts, pictures := 0, 0, 0, 0
		ended := func(p *fakebot.Person, m int) bool {
			list := p.Sees()
			for _, text := range []string{"the connection dropped before", "Sorry", "couldn't make that"} {
				if len(fakebot.Filter(list, fakebot.Answering(m, fakebot.Saying(text)))) > 0 {
					return true
				}
			}
			return len(fakebot.Filter(list, fakebot.Answering(m, fakebot.IsPicture))) > 0
		}
		deadline := time.Now().Add(2 * time.Hour)
		for n, p := range people {
			want := 1
			if n%5 == 4 {
				want = 2
			}
			for _, m := range asked[p] {
				for !ended(p, m) && time.Now().Before(deadline) {
					time.Sleep(time.Second)
				}
				if !ended(p, m) {
					silent++
					t.Logf("silent: %s", fakebot.Texts(p.All()))
				}
			}
			time.Sleep(2 * time.Minute) // what comes late comes now
			for _, m := range asked[p] {
				got := len(fakebot.Filter(p.All(), fakebot.Answering(m, fakebot.IsPicture)))
				if got > want {
					twice++
					t.Logf("twice: %s", fakebot.Texts(p.All()))
				}
				if got > 0 {
					pictures++
				}
				doubts += len(fakebot.Filter(p.All(), fakebot.Answering(m, fakebot.Saying("the connection dropped before"))))
			}
		}
		bad.mu.Lock()
		bad.over = true
		failed := 0
		for _, n := range bad.failed {
			failed += n
		}
		bad.mu.Unlock()
		all := s.chats * s.requests
		t.Logf("%d requests of %d chats, %d kills, %d faulty calls: %d with a picture, %d silent, %d doubled, %d in doubt (%.1f %%)",
			all, s.chats, s.kills, failed, pictures, silent, twice, doubts, 100*float64(doubts)/float64(all))
		require.Zero(t, silent)
		require.Zero(t, twice)
		require.LessOrEqual(t, 50*doubts, all, "fewer than 2 %")
		for _, p := range people {
			r.noTrace(p)
		}
	})
}
