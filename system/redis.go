package system

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
	"github.com/comfyhub/comfyhub/system/network"
)

const (
	redisAddress = "redis:6379"
	// redisURL allows so many connections that nobody waits for one: go-redis shares the timers of
	// those who wait between all bubbles.
	redisURL = "redis://" + redisAddress + "?pool_size=1000"
)

// Redis is the server that all hubs share: the embedded engine behind a port, with its
// journal in a folder.
type Redis struct {
	w      *World
	starts int
	engine *engine.Engine
	listen *network.Listener
	// ahead is how far its clock is ahead of everybody else's.
	ahead atomic.Int64
}

func newRedis(w *World) *Redis {
	r := &Redis{w: w}
	r.SetAhead(w.size.RedisAhead)
	return r
}

// SetAhead sets its clock, so much ahead of the clock that all others share.
func (r *Redis) SetAhead(d time.Duration) { r.ahead.Store(int64(d)) }

// now is what its clock shows.
func (r *Redis) now() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }

// SetFull makes it refuse to take more, or ends that.
func (r *Redis) SetFull(full bool) { r.engine.SetFull(full) }

// Start starts it from its journal.
func (r *Redis) Start() {
	r.starts++
	e, err := engine.Open(engine.Options{Dir: r.w.folder("redis"), Now: r.now, Logger: r.w.log, Server: true, RunID: fmt.Sprintf("%040x", r.starts)})
	require.NoError(r.w.t, err)
	l, err := r.w.Net.Listen(redisAddress)
	require.NoError(r.w.t, err)
	r.engine, r.listen = e, l
	r.w.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.w.work.Go(func() { e.Serve(c) })
		}
	})
}

// answers changes the links from it to all hubs.
func (r *Redis) answers(l network.Link) {
	for _, h := range r.w.Hubs {
		r.w.Net.Set("redis", h.name, l)
	}
}

// Crash is kill -9. A forgetful server loses up to a second of what it has acknowledged, as
// with appendfsync everysec.
func (r *Redis) Crash(forgetful bool) {
	r.w.Net.Kill("redis")
	if !forgetful {
		require.NoError(r.w.t, r.engine.Sync())
	}
	r.engine.Crash()
}

// Replicate makes a replica that has all until now and nothing of what comes later.
func (r *Redis) Replicate() {
	require.NoError(r.w.t, r.engine.Sync())
	require.NoError(r.w.t, os.RemoveAll(r.w.folder("replica")))
	require.NoError(r.w.t, os.CopyFS(r.w.folder("replica"), os.DirFS(r.w.folder("redis"))))
}

// Failover puts the replica in its place: all that came after Replicate is lost.
func (r *Redis) Failover() {
	r.Crash(true)
	require.NoError(r.w.t, os.RemoveAll(r.w.folder("redis")))
	require.NoError(r.w.t, os.Rename(r.w.folder("replica"), r.w.folder("redis")))
	r.Start()
}

// Stop ends it in order.
func (r *Redis) Stop() {
	r.w.Net.Kill("redis")
	require.NoError(r.w.t, r.engine.Close())
}
