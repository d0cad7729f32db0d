package hub_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// person is one client with a few prompts, and what it believes about them: the
// first runs and the others wait. In fact the hub runs some of the others too.
type person struct {
	b      *bench
	client string
	socket bool
	slots  int // instances
	ids    []string
	over   []bool // what should be gone
	named  int    // the prompt that a delete named in vain, -1 for none
	behind []bool // those that waited at a bare interrupt
	clears []bool // those that ran at a clear
}

// A gesture of a person: the request it sends, and the expected result.
var personal = map[string]struct {
	send  func(p *person) (path, body string)
	means func(p *person)
}{
	"delete the others": {
		func(p *person) (string, string) { return "/queue", p.deletes(p.ids[1:]...) },
		func(p *person) { p.meansDelete(1, len(p.ids)) },
	},
	"delete the last": {
		func(p *person) (string, string) { return "/queue", p.deletes(p.ids[len(p.ids)-1]) },
		func(p *person) { p.meansDelete(len(p.ids)-1, len(p.ids)) },
	},
	"delete the first": {
		func(p *person) (string, string) { return "/queue", p.deletes(p.ids[0]) },
		func(p *person) { p.meansDelete(0, 1) },
	},
	"delete all": {
		func(p *person) (string, string) { return "/queue", p.deletes(p.ids...) },
		func(p *person) { p.meansDelete(0, len(p.ids)) },
	},
	"clear": {
		func(p *person) (string, string) {
			return "/queue", fmt.Sprintf(`{"clear": true, "client_id": %q}`, p.client)
		},
		func(p *person) {
			p.clears = p.running()
			for n := range p.ids {
				p.over[n] = p.over[n] || !p.clears[n] || p.behind[n]
			}
		},
	},
	"interrupt": {
		func(p *person) (string, string) { return "/interrupt", fmt.Sprintf(`{"client_id": %q}`, p.client) },
		func(p *person) {
			head := p.head()
			for n := range p.ids {
				p.over[n] = p.over[n] || p.clears != nil && p.clears[n]
			}
			if p.named >= 0 && !p.over[p.named] {
				head = p.named
			}
			if head >= 0 {
				p.over[head] = true
			}
			for n := range p.ids {
				p.behind[n] = !p.over[n]
			}
		},
	},
	"interrupt the first by its id": {
		func(p *person) (string, string) { return "/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, p.ids[0]) },
		func(p *person) { p.over[0] = p.over[0] || p.running()[0] },
	},
	"interrupt the last by its id": {
		func(p *person) (string, string) {
			return "/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, p.ids[len(p.ids)-1])
		},
		func(p *person) { n := len(p.ids) - 1; p.over[n] = p.over[n] || p.running()[n] },
	},
}

func (p *person) deletes(ids ...string) string {
	list := must(json.Marshal(ids))(p.b.t)
	return fmt.Sprintf(`{"delete": %s, "client_id": %q}`, list, p.client)
}

// head returns the prompt that the person sees running, or -1 for none.
func (p *person) head() int { return slices.Index(p.over, false) }

// running returns the prompts that run, on as many instances as there are.
func (p *person) running() []bool {
	all, free := make([]bool, len(p.ids)), p.slots
	for n := range p.ids {
		if !p.over[n] && free > 0 {
			all[n] = true
			free--
		}
	}
	return all
}

func (p *person) meansDelete(from, to int) {
	head := p.head()
	for n := from; n < to; n++ {
		switch {
		case n == head && !p.behind[n]:
			p.named = n
		default:
			p.over[n] = true
		}
	}
}

// fate reports whether a prompt has ended or its end was asked for.
func (p *person) fate(id string) (over bool) {
	j := must(p.b.hub.Queue.Find(p.b.t.Context(), job.DefaultTenant, id))(p.b.t)
	if j.State == job.Queued || j.State.Ended() {
		return j.State != job.Queued
	}
	asked := must(p.b.hub.DB.Client().HExists(p.b.t.Context(), p.b.hub.DB.Key("q", "job", j.Key), "cancel").Result())(p.b.t)
	return asked
}

// steady waits until every prompt that may run does, and the first is shown.
func (p *person) steady() {
	p.b.t.Helper()
	eventually(p.b.t, func() bool {
		want := p.running()
		for n, id := range p.ids {
			j := must(p.b.hub.Queue.Find(p.b.t.Context(), job.DefaultTenant, id))(p.b.t)
			runs := j.State == job.Running
			if runs != want[n] || p.over[n] && !j.State.Ended() {
				return false
			}
			shown := p.b.hub.Streams.Shows(stream.Key{Tenant: job.DefaultTenant, Client: p.client}, j.Key)
			if shown != (p.socket && n == p.head()) {
				return false
			}
		}
		return true
	}, time.Minute, 2*time.Millisecond, "%v", p.over)
}

// begin posts the prompts, each one when the last has begun: it is shown as the first of
// those that have.
func (p *person) begin(count int) {
	p.over, p.behind, p.named = make([]bool, count), make([]bool, count), -1
	if p.socket {
		c := p.b.dial(p.client)
		p.b.t.Cleanup(func() { c.conn.CloseNow() })
	}
	for n := range count {
		p.ids = append(p.ids, p.b.submit(endless(n), p.client))
		p.over = p.over[:n+1]
		p.steady()
	}
}

// leave ends everything that is left.
func (p *person) leave() {
	p.b.posts("/queue", p.deletes(p.ids...))
	for _, id := range slices.Backward(p.ids) {
		p.b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, id))
	}
	for n := range p.over {
		p.over[n] = true
	}
	p.steady()
}

// orders returns the single gestures and every pair of them in both orders.
func orders(gestures []string) (all [][]string) {
	for _, one := range gestures {
		all = append(all, []string{one})
		for _, two := range gestures {
			if one != two {
				all = append(all, []string{one, two})
			}
		}
	}
	return all
}

// Checks every gesture and every pair in both orders against what a person who
// knows one ComfyUI expects: named prompts are gone, prompts that are neither
// named nor shown go on, and "cancel all" leaves nothing.
func TestWhatStopsWhat(t *testing.T) {
	t.Parallel()
	every := slices.Sorted(maps.Keys(personal))
	few := []string{"delete the others", "delete all", "clear", "interrupt"}
	for _, c := range []struct {
		instances, prompts int
		socket             bool
		gestures           []string
	}{
		{2, 3, true, every},
		{2, 3, false, few},
		{1, 1, true, few},
		{1, 3, true, few},
		{3, 2, true, few},
		{3, 3, true, few},
	} {
		if testing.Short() && (c.instances != 2 || c.prompts != 3) {
			continue
		}
		runInBubble(t, fmt.Sprintf("%d on %d, socket %t", c.prompts, c.instances, c.socket), func(t *testing.T) {
			b := newBench(t, c.instances)
			b.rooms.ComfyUI.RememberCalls(time.Hour, time.Hour)
			for n, order := range orders(c.gestures) {
				p := &person{b: b, client: fmt.Sprint("client", n), socket: c.socket, slots: c.instances}
				p.begin(c.prompts)
				for _, gesture := range order {
					path, body := personal[gesture].send(p)
					personal[gesture].means(p)
					b.posts(path, body)
					for n, id := range p.ids {
						require.Equal(t, p.over[n], p.fate(id), "prompt %d of %d after %s", n+1, c.prompts, strings.Join(order, ", "))
					}
					p.steady()
				}
				p.leave()
			}
		})
	}
}

// A prompt that is deleted before its client has seen it run is gone at once even if it runs:
// no listing, no message, no count. The history does not say how it ended, since its id is sent again.
func TestTakenBack(t *testing.T) {
	inBench(t, benchOf(2), func(t *testing.T, b *bench) {
		socket := b.dial("ann")
		shown := b.submit(endless(1), "ann")
		require.Equal(t, "execution_start", socket.next().Type)
		taken := b.begins(endless(2), "ann")
		job := must(b.hub.Queue.Find(t.Context(), "default", taken))(t)

		b.posts("/queue", fmt.Sprintf(`{"delete": [%q]}`, taken))
		for path, missing := range map[string]string{"/queue": taken, "/api/jobs": taken, "/hub/jobs": taken, "/history": taken} {
			require.NotContains(t, b.text(path), missing, path)
		}
		require.Equal(t, http.StatusNotFound, statusOf(b.get("/api/jobs/"+taken)))
		require.JSONEq(t, `{"exec_info": {"queue_remaining": 1}}`, b.text("/prompt?clientId=ann"))
		// The same prompt can be sent again at once, and is a new job.
		b.postAs(taken, "bob", endless(2))
		b.posts("/interrupt", `{"client_id": "ann"}`)
		require.Contains(t, socket.until(shown), "execution_interrupted", "the shown one, and nothing of the other")
		eventually(t, func() bool {
			j := must(b.hub.Queue.Get(t.Context(), job.Key))(t)
			return j.State.Ended()
		}, time.Minute, time.Millisecond)
		_, found := b.history(taken)
		require.False(t, found)
		last := b.submit(work(1, 3, "none"), "ann")
		socket.until(last) // fails at any message of another prompt
		b.posts("/interrupt", `{"client_id": "bob"}`)
	})
}

// Three hubs may be involved: one is asked to delete, one runs the prompt, and one
// has the client's socket. The history says how it ended: others saw it listed as running.
func TestTakenBackAtAnotherHub(t *testing.T) {
	inPair(t, 1, 1, func(t *testing.T, one, two *bench) {
		socket := one.dial("ann")
		shown := one.submit(endless(1), "ann")
		require.Equal(t, "execution_start", socket.next().Type)
		taken := one.submit(endless(2), "ann")
		running := func(n int) func() bool {
			return func() bool {
				jobs := must(one.hub.Queue.Live(t.Context(), job.DefaultTenant))(t)
				jobs = slices.DeleteFunc(jobs, func(j job.Job) bool { return j.State != job.Running })
				return len(jobs) == n
			}
		}
		eventually(t, running(2), time.Minute, time.Millisecond)
		for _, b := range []*bench{two, one} {
			b.posts("/queue", fmt.Sprintf(`{"delete": [%q]}`, taken))
			require.NotContains(t, one.text("/queue"), taken)
			eventually(t, func() bool { _, ok := one.history(taken); return ok }, time.Minute, time.Millisecond)
			entry, _ := one.history(taken)
			require.Equal(t, "error", entry.Status.Text)
			require.Equal(t, `"execution_interrupted"`, string(entry.Status.Messages[len(entry.Status.Messages)-1][0]))
			last := one.submit(work(1, 3, "none"), "ann") // runs where the other one has ended
			eventually(t, func() bool { _, ok := two.history(last); return ok }, time.Minute, time.Millisecond)
			taken = two.submit(endless(4), "ann")
			eventually(t, running(2), time.Minute, time.Millisecond)
		}
		one.posts("/queue", fmt.Sprintf(`{"delete": [%q]}`, taken))
		two.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, shown))
		id, all := socket.sequence()
		require.Equal(t, shown, id)
		require.Contains(t, kept(all), "execution_interrupted")
		for range 2 {
			_, all := socket.sequence()
			require.Contains(t, kept(all), "execution_success", "no message of what was taken back")
		}
	})
}
