package waits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
	"github.com/comfyhub/comfyhub/system"
)

const (
	// A worker without work asks for some each askEach, and looks for the end of its prompt in the
	// instance's history each lookEach.
	askEach  = time.Second
	lookEach = 500 * time.Millisecond
	poolLoad = 0.7
)

// pool compares how much longer than they run prompts take with workers that poll, one for each
// instance, as most people write it first: a list of tasks, POST /prompt, GET /history until it is there.
func pool(t *testing.T, o options) figure.Figure {
	const instances = 4
	list := pictures(o.seed, instances, o.some(400), poolLoad) // short prompts suffer most from polling
	var polling, ours time.Duration
	inWorld(t, instances, system.Config{}, func(r *rig) { polling = r.polled(list, o.seed) })
	inWorld(t, instances, system.Config{}, func(r *rig) { ours = mean(r.play(list, r.hub)) })
	return figure.Figure{
		Name: "pool4", Value: polling.Seconds() / ours.Seconds(), Unit: "ratio", Goal: 2,
		Beside: fmt.Sprintf("pictures of %.0f s take %.2f s longer than they run with workers that poll, %.2f s with the hub, %.2f s with an ideal queue",
			picture.Seconds(), polling.Seconds(), ours.Seconds(), ideal(list, instances).Seconds()),
	}
}

// tasks is a list that workers take prompts from.
type tasks struct {
	mu   sync.Mutex
	list []int
}

func (q *tasks) add(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, n)
}

func (q *tasks) take() (n int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == 0 {
		return 0, false
	}
	n, q.list = q.list[0], q.list[1:]
	return n, true
}

// polled gives prompts to workers, and returns how much longer than they run they took on average,
// to the moment at which their worker knows of their end.
func (r *rig) polled(list []arrival, seed uint64) time.Duration {
	var (
		queue  tasks
		ended  = make([]time.Time, len(list))
		failed = make([]error, len(r.w.Comfys))
		left   sync.WaitGroup
		all    sync.WaitGroup
	)
	ctx, stop := context.WithCancel(context.Background())
	phase := rand.New(rand.NewPCG(seed, 10)) // #nosec G404 -- repeatable, not secret
	left.Add(len(list))
	for n, c := range r.w.Comfys {
		asleep := time.Duration(phase.Int64N(int64(askEach)))
		all.Go(func() {
			<-time.After(asleep)
			for ctx.Err() == nil && failed[n] == nil {
				task, ok := queue.take()
				if !ok {
					<-time.After(askEach)
					continue
				}
				failed[n] = r.follow(c.URL(), list[task], task)
				ended[task] = time.Now()
				left.Done()
			}
		})
	}
	begin := time.Now()
	for n, a := range list {
		<-time.After(time.Until(begin.Add(a.at)))
		queue.add(n)
	}
	left.Wait()
	stop()
	all.Wait()
	var sum time.Duration
	for n, a := range list {
		sum += ended[n].Sub(begin.Add(a.at)) - a.takes
	}
	for _, err := range failed {
		require.NoError(r.t, err)
	}
	return sum / time.Duration(len(list))
}

// follow posts a prompt to an instance and asks until it is in the history.
func (r *rig) follow(url string, a arrival, n int) error {
	var p played
	if err := r.post(&p, url, a.body("pool", n)); err != nil {
		return err
	}
	for {
		var entry map[string]any
		if _, err := r.call(http.MethodGet, url+"/history/"+p.id, "", &entry); err != nil || len(entry) > 0 {
			return err
		}
		<-time.After(lookEach)
	}
}
