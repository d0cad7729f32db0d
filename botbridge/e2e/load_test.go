package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/stage"
)

// load sets the size of TestLoad. COMFYHUB_BOT_LOAD=full is the load that the
// bridge is made for. COMFYHUB_BOT_LOAD=real also keeps Telegram's own limits,
// which takes minutes.
func load() (chats, requests int, scale float64) {
	switch os.Getenv("COMFYHUB_BOT_LOAD") {
	case "real":
		return 200, 5, 1
	case "full":
		return 200, 5, 10
	}
	return 30, 4, 10
}

// trouble returns the faults on Telegram's side: 2 % floods, 2 % errors, 1 % of
// the connections cut, half of those after the call took effect.
func trouble() func(string) fakebot.Fault {
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(4, 2))
	return func(string) fakebot.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch n := dice.IntN(1000); {
		case n < 20:
			return fakebot.Flood
		case n < 40:
			return fakebot.Broken
		case n < 45:
			return fakebot.CutBefore
		case n < 50:
			return fakebot.CutAfter
		}
		return fakebot.None
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	chats, requests, scale := load()
	r := newRig(t, func(o *stage.Options) {
		o.Fake = fakebot.Options{Scale: scale, Enforce: true, Fault: trouble()}
		o.Config = strings.ReplaceAll(config, "rate: 10", fmt.Sprintf("rate: %g", scale))
		o.AgentFlags = []string{"--time-scale", "0.1"}
		o.Instances = 4
	})
	begin := time.Now()
	people := make([]*fakebot.Person, chats)
	asked := make([][]int, chats)
	for n := range people {
		people[n] = r.Fake.Person(int64(1000+n), "en")
		if n%10 == 9 {
			// In a group, which has its own limits.
			people[n] = people[n].In(int64(-1000 - n))
		}
	}
	for k := range requests {
		for n, p := range people {
			m, _ := p.Say("/work --seed " + strconv.Itoa(1+n*requests+k))
			asked[n] = append(asked[n], m)
		}
	}
	over := func() int {
		done := 0
		for n, p := range people {
			list := p.Sees()
			for _, m := range asked[n] {
				done += min(1, fakebot.Ends(list, m))
			}
		}
		return done
	}
	all := chats * requests
	await := func(share int) {
		require.Eventually(t, func() bool { return over() >= all*share/100 }, 10*time.Minute, 100*time.Millisecond, "%d of %d", over(), all)
	}
	await(20)
	early, _ := r.Bridge.Memory()
	r.Hub.Kill()
	require.NoError(t, r.StartHub(r.ctx))
	await(45)
	r.Bridge.Kill()
	require.NoError(t, r.RestartBridge(r.ctx))
	await(80)
	late, _ := r.Bridge.Memory()
	await(100)

	doubt, pictures := 0, 0
	for n, p := range people {
		list := p.Sees()
		for k, m := range asked[n] {
			require.Equal(t, 1, fakebot.Ends(list, m), "each request ends once: %s", fakebot.Texts(p.All()))
			got := fakebot.Filter(list, fakebot.Answering(m, fakebot.IsPicture))
			require.LessOrEqual(t, len(got), 1, "nobody gets a picture twice: %s", fakebot.Texts(p.All()))
			pictures += len(got)
			if len(got) == 0 {
				doubt++
				t.Logf("in doubt: %s", fakebot.Texts(fakebot.Filter(p.All(), fakebot.Answering(m, func(fakebot.Message) bool { return true }))))
				continue
			}
			require.Equal(t, strconv.Itoa(1+n*requests+k), strings.Fields(got[0].Text)[1], "everybody gets their own: %s", got[0].Text)
		}
		require.True(t, inOrder(p.All(), asked[n]), "the first answers come in the order of the questions: %s", fakebot.Texts(p.All()))
	}
	tooFast, worst := r.Fake.TooFast()
	t.Logf("%d requests of %d chats in %v: %d pictures, %d in doubt and said so; %d calls too fast, fullest windows %+v; memory %d and %d MB; calls %v",
		all, chats, time.Since(begin).Round(time.Second), pictures, doubt, tooFast, worst, early>>20, late>>20, r.Fake.Calls())
	require.Zero(t, tooFast, "%+v", worst)
	// The faults leave some requests in doubt, and the kill at most one in each chat.
	require.LessOrEqual(t, doubt, 5+all/50+chats)
	require.Less(t, late, min(150<<20, early+64<<20), "memory stays flat")
}

// inOrder reports whether the first answers to the messages come in the order of
// the messages.
func inOrder(list []fakebot.Message, asked []int) bool {
	last := 0
	for _, m := range asked {
		first, ok := 0, false
		for _, said := range list {
			if said.FromBot && said.ReplyTo == m {
				first, ok = said.ID, true
				break
			}
		}
		if !ok || first < last {
			return false
		}
		last = first
	}
	return true
}

// A large file passes through without being held in memory.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *stage.Options) {
		o.Config += "  large: {workflow: large.json, inputs: {seed: 1.color, count: \"-\", size: \"-\"}, max_seed: 16777215}\n"
	})
	ada := r.Fake.Person(11, "en")
	asked, _ := ada.Say("/large")
	large := r.waitFor(ada, "a large file", fakebot.Answering(asked, func(m fakebot.Message) bool { return m.FromBot && m.Kind == "document" }))
	require.Greater(t, large.File.Size, int64(40<<20))
	memory, _ := r.Bridge.Memory()
	t.Logf("the bridge has %d MB after %d MB went through", memory>>20, large.File.Size>>20)
	require.Less(t, memory, int64(80<<20))
}
