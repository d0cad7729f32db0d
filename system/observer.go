package system

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// observer looks at the hubs at odd moments while everything goes on, and says which
// promise it finds broken. It only believes a hub that no fault has kept from Redis of late.
type observer struct {
	w      *World
	ledger *Ledger
	rand   *rand.Rand
	http   *http.Client
	// clients are the names of those whose prompts are counted.
	clients []string
	// runs are the queue's, and held those that it had when it looked last.
	runs *queue.Queue
	held map[string]job.Run
	// strayed is since when hubs follow runs that Redis says are not theirs.
	strayed map[stray]time.Time
}

const (
	// believed is how long after its last fault a hub is believed, and settled how long
	// after most faults servers may idle beside work.
	believed = 10 * time.Second
	settled  = 20 * time.Second
	// idlesAtMost is how long a server may be idle beside a prompt that it could run.
	idlesAtMost = 1500 * time.Millisecond
	// looksFor is how often it looks within that time.
	looksFor = 6
)

// observe looks until the world ends or stop is closed.
func (w *World) observe(seed uint64, clients []string, ledger *Ledger, stop <-chan struct{}) {
	o := &observer{w: w, clients: clients, ledger: ledger, rand: rand.New(rand.NewPCG(seed, 2)), http: w.HTTP("observer")} // #nosec G404 -- repeatable, not secret
	defer o.http.CloseIdleConnections()
	defer o.openRuns()()
	for {
		select {
		case <-stop:
			return
		case <-w.ended.Done():
			return
		case <-time.After(time.Duration(200+o.rand.IntN(3000)) * time.Millisecond):
		}
		o.keepRuns()
		h := w.Hubs[o.rand.IntN(len(w.Hubs))]
		look := o.rand.IntN(3)
		if look == 0 {
			if w.weather.settled() {
				o.allWorks(h)
			}
			continue
		}
		if !w.weather.calm(believed, h.name, "redis") {
			continue
		}
		if look == 1 {
			o.seesAll(h)
		} else {
			o.counts(h)
		}
	}
}

// seesAll checks that each prompt that was accepted is in the queue, or else in the history.
func (o *observer) seesAll(h *Hub) {
	prompts := o.ledger.some(o.rand, 3)
	q, err := o.queue(h)
	if err != nil {
		return
	}
	for _, p := range prompts {
		var history map[string]json.RawMessage
		if q.has(p.ID) || o.get(h, "/history/"+url.PathEscape(p.ID), &history) != nil || !o.w.weather.complete(h.name, o.w.Hubs) {
			continue
		}
		if _, ended := history[p.ID]; !ended {
			again, err := o.queue(h)
			o.ledger.breach(p.ID, "%s has it neither in the queue nor, looked at after that, in the history (again in the queue: %v, %v)", h.name, again.has(p.ID), err)
		}
	}
}

// counts checks that GET /prompt tells a client how many of its prompts are in the queue.
func (o *observer) counts(h *Hub) {
	client := o.clients[o.rand.IntN(len(o.clients))]
	var count struct {
		Info struct {
			Remaining int `json:"queue_remaining"`
		} `json:"exec_info"`
	}
	before, err := o.queue(h)
	if err != nil || o.get(h, "/prompt?clientId="+client, &count) != nil {
		return
	}
	after, err := o.queue(h)
	if err != nil || !o.w.weather.calm(believed, h.name, "redis") || !slices.Equal(before.all(), after.all()) {
		return
	}
	own := slices.DeleteFunc(after.all(), func(id string) bool { return !strings.HasPrefix(id, client+"-") })
	if len(own) != count.Info.Remaining {
		o.ledger.breach(client, "%v are in the queue of %s, and GET /prompt says %d", own, h.name, count.Info.Remaining)
	}
}

// allWorks checks that no server stays idle beside a prompt that waits: each can run any.
// Whether one is idle it asks the server: a hub that believes it busy may be wrong. And that
// no more prompts run than servers have.
func (o *observer) allWorks(h *Hub) {
	var waiting, idle, running []string
	for n := range looksFor {
		q, err := o.queue(h)
		var instances []shownInstance
		if err != nil || o.get(h, "/hub/instances", &instances) != nil || !o.w.weather.settled() {
			return
		}
		var now []string
		for _, i := range ofFleet(instances) {
			server := o.w.behind(i.Name)
			if (i.State == "idle" || i.State == "busy") && server != nil && server.Remaining() == 0 {
				now = append(now, i.Name)
			}
		}
		// One whose batch servers make together runs on, even if the last part waits for a server.
		// And what hubs know of a run at an endpoint is some seconds old.
		q.running = slices.DeleteFunc(q.running, func(id string) bool {
			return strings.HasSuffix(id, batchMark) || o.w.Cloud.ran(o.ledger.prompt(id))
		})
		if n == 0 {
			waiting, idle, running = q.pending, now, q.running
		}
		waiting, idle, running = both(waiting, q.pending), both(idle, now), both(running, q.running)
		if len(q.running) <= o.remaining() {
			running = nil
		}
		if (len(waiting) == 0 || len(idle) == 0) && len(running) == 0 {
			return
		}
		if !o.w.sleep(idlesAtMost / (looksFor - 1)) {
			return
		}
	}
	if len(running) > 0 {
		o.ledger.breach(running[0], "for %v %v run, and servers have only %d prompts", idlesAtMost, running, o.remaining())
		return
	}
	o.ledger.breach(waiting[0], "it waits, and for %v %v is idle", idlesAtMost, idle)
}

// both are the texts that are in two lists.
func both(a, b []string) []string {
	return slices.DeleteFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

// remaining is how many prompts all servers have.
func (o *observer) remaining() (n int) {
	for _, c := range o.w.Comfys {
		n += c.Remaining()
	}
	for _, m := range o.w.Rental.all() {
		n += m.remaining()
	}
	return n + o.w.Cloud.going()
}

// listing is what a hub shows in /queue.
type listing struct{ running, pending []string }

func (l listing) all() []string {
	return slices.Sorted(slices.Values(slices.Concat(l.running, l.pending)))
}

func (l listing) has(id string) bool {
	return slices.Contains(l.running, id) || slices.Contains(l.pending, id)
}

func (o *observer) queue(h *Hub) (l listing, err error) {
	var q struct {
		Running []promptEntry `json:"queue_running"`
		Pending []promptEntry `json:"queue_pending"`
	}
	err = o.get(h, "/queue", &q)
	for _, e := range q.Running {
		l.running = append(l.running, string(e))
	}
	for _, e := range q.Pending {
		l.pending = append(l.pending, string(e))
	}
	return l, err
}

// promptEntry is the id of an entry of /queue.
type promptEntry string

// UnmarshalJSON implements [json.Unmarshaler].
func (e *promptEntry) UnmarshalJSON(b []byte) error {
	var fields []json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil || len(fields) < 2 {
		return fmt.Errorf("no entry: %.100s", b)
	}
	return json.Unmarshal(fields[1], (*string)(e))
}

func (o *observer) get(h *Hub, path string, answer any) error {
	resp, err := o.http.Get(h.URL() + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %d, %w", path, resp.StatusCode, err)
	}
	return json.Unmarshal(body, answer)
}
