package a1111

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// protocol is the version of ComfyUI that hubs should take a server for.
	protocol = "0.33.0"
	// device is the name of the GPU, which A1111 does not tell.
	device = "A1111"
	// patience is how long a server that has not refused may take to answer.
	patience = time.Minute
)

// LearnEvery is the pause between two looks at a server's models and memory.
const LearnEvery = time.Minute

// life is one life of a server, from its first answer until it answers no more. It is the
// backend of a facade.
type life struct {
	client *client
	every  time.Duration
	own    http.Handler
	server *facade.Server
	can    atomic.Pointer[abilities]
	about  atomic.Pointer[facade.About]
	// lost is closed when the server is gone, ended when nobody wants to know.
	lost, ended chan struct{}
	lose        func()
	end         func()

	// looking is held while the server is asked what it does.
	looking *semaphore.Weighted

	mu sync.Mutex
	// task is what runs, nil for nothing; begun counts those that have begun.
	task  *task
	begun int
	// settings are the server's as they were between two requests when they were seen last,
	// nil if they were not.
	settings *pyjson.Object
}

func newLife(c *client, o Options, can *abilities) *life {
	l := &life{client: c, every: o.Every, lost: make(chan struct{}), ended: make(chan struct{}), looking: semaphore.NewWeighted(1)}
	l.lose = sync.OnceFunc(func() { close(l.lost) })
	l.end = sync.OnceFunc(func() { close(l.ended) })
	l.can.Store(can)
	l.about.Store(&facade.About{Version: protocol})
	l.own = ownRoutes{l}.handler()
	return l
}

// ObjectInfo implements [facade.Backend].
func (l *life) ObjectInfo() []byte { return l.can.Load().info }

// About implements [facade.Backend].
func (l *life) About() facade.About { return *l.about.Load() }

// watch looks at what the server does until it is gone, and says why.
func (l *life) watch(ctx context.Context) error {
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	l.remember(ctx)
	seen, learned := time.Now(), time.Now()
	for {
		err := l.look(ctx, 0)
		switch {
		case err == nil:
			seen = time.Now()
		case errors.Is(err, syscall.ECONNREFUSED), time.Since(seen) > patience:
			return err
		}
		if err == nil && time.Since(learned) > LearnEvery {
			l.learn(ctx)
			learned = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.lost:
			return errGone
		case <-tick.C:
		}
	}
}

// look asks the server what it does, and passes that on to those it concerns. For what runs an
// earlier answer will do that is not older than age.
func (l *life) look(ctx context.Context, age time.Duration) error {
	if err := l.looking.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.looking.Release(1)
	l.mu.Lock()
	t := l.task
	known := t != nil && age > 0 && time.Since(t.asked) < age
	l.mu.Unlock()
	if known {
		return nil
	}
	p, err := l.client.progress(ctx, t != nil)
	if err != nil {
		return err
	}
	if l.take(t, p) {
		l.obey(ctx, t, p)
	}
	return nil
}

// take takes in what the server does, and reports whether that is the task still.
func (l *life) take(t *task, p progress) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.task != t: // it has changed meanwhile
		return false
	case t == nil:
		l.server.SetForeign(p.busy)
		return false
	}
	t.see(p)
	return true
}

// learn reads again what the server can run.
func (l *life) learn(ctx context.Context) {
	if can, err := l.client.abilities(ctx); err == nil {
		l.can.Store(can)
	}
	_, _ = l.settingsBetween(ctx) // else those seen last are good
	l.remember(ctx)
}

// remember reads how much memory the GPU has.
func (l *life) remember(ctx context.Context) {
	v, err := l.client.get(ctx, "memory", maxError)
	if err != nil {
		return
	}
	o, _ := v.(*pyjson.Object)
	system := o.Object("cuda").Object("system")
	number := func(key string) int64 {
		v, _ := system.Get(key)
		n, _ := v.(pyjson.Number)
		return int64(min(max(n.Float64(), 0), 1<<50))
	}
	about := &facade.About{Version: protocol, VRAMTotal: number("total"), VRAMFree: number("free")}
	if about.VRAMTotal > 0 {
		about.Device = device
	}
	l.about.Store(about)
}
