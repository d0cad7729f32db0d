package system

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
	"github.com/comfyhub/comfyhub/system/network"
)

const redisAddress = "redis:6379"

// Redis is the server that all hubs share: the embedded engine behind a port, with its
// journal in a folder.
type Redis struct {
	w      *World
	starts int
	engine *engine.Engine
	listen *network.Listener
}

func newRedis(w *World) *Redis { return &Redis{w: w} }

// Start starts it from its journal.
func (r *Redis) Start() {
	r.starts++
	e, err := engine.Open(engine.Options{Dir: r.w.folder("redis"), Logger: r.w.log, Server: true, RunID: fmt.Sprintf("%040x", r.starts)})
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

// Crash is kill -9. A forgetful server loses up to a second of what it has acknowledged, as
// with appendfsync everysec.
func (r *Redis) Crash(forgetful bool) {
	r.w.Net.Kill("redis")
	if !forgetful {
		require.NoError(r.w.t, r.engine.Sync())
	}
	r.engine.Crash()
}

// Stop ends it in order.
func (r *Redis) Stop() {
	r.w.Net.Kill("redis")
	require.NoError(r.w.t, r.engine.Close())
}
