package system

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/system/network"
)

// World is one installation. Everything in it lives in the bubble of the test that made it.
type World struct {
	Net    *network.Network
	Redis  *Redis
	Disk   *Disk
	Hubs   []*Hub
	Comfys []*Comfy
	// Agents are those of the first ComfyUI servers; the hubs are told where the others are.
	Agents []*Agent
	// Cloud is the serverless endpoint, nil if there is none.
	Cloud *Cloud
	// Rental has the machines that come and go by need, nil if none do.
	Rental *Rental
	Trace  *Trace

	t     testing.TB
	size  Config
	dir   string
	log   *slog.Logger
	ended context.Context // ends what works on behind the scenario
	// allEnded is closed when all prompts of a run have ended: then even faults that stay heal.
	allEnded chan struct{}
	end      context.CancelFunc
	work     sync.WaitGroup
	deaths   deaths
	weather  weather
	still    stillness
	// faults are those that have not healed.
	faults sync.WaitGroup
}

// Config is the size of a world.
type Config struct {
	Hubs, Comfys int
	// Agents is how many of the ComfyUI servers have an agent. Default: none.
	Agents int
	// Clients is how many clients a schedule of faults may concern, those that listen.
	// Default: none.
	Clients int
	// Batch is how many pictures the batches have that clients post; then they post more of them.
	// Default: 4 pictures, and every third prompt.
	Batch int
	// Forgetful makes a Redis that crashes lose what it has not synced.
	Forgetful bool
	// RedisAhead is how far Redis's clock is ahead of everybody else's. Run chooses it.
	RedisAhead time.Duration
	// Cloud is the kind of a serverless endpoint that hubs may use, "runpod" or "http". Default: none.
	Cloud string
	// Rental lets machines come and go by need. Default: none do.
	Rental *RentalConfig
	// Seconds are how long prompts take, one or the other. Default: 0.2, 2, and 15.
	Seconds []float64
	// Rest is how long clients rest, and how long they post between that. Default: they never rest.
	Rest time.Duration
	// Damage lets disks lose what they say they have synced, and breaks the hubs' data folders. Then
	// Redis loses nothing: what a hub knows of it may be what is damaged.
	Damage bool
	// Leave lets a hub end around most failovers.
	Leave bool
	// Stay makes one fault last until all prompts have ended.
	Stay bool
	// Clocks lets Redis's clock jump.
	Clocks bool
	// Storm makes hubs and Redis fail all the time, and nothing else.
	Storm bool
	// Comfy is what the ComfyUI servers have. Their names, folders and logs are the world's.
	Comfy sim.Config
	// TenantSecret lets those who show it name tenants. Default: nobody may.
	TenantSecret string
	// Settings changes what the hubs are configured with. Default: nothing.
	Settings func(*config.Settings)
	// Log receives what the hubs log. Default: nothing.
	Log io.Writer
}

// New starts Redis, the ComfyUI servers and the hubs, and waits until each hub can use all
// servers. Close ends them.
func New(t testing.TB, c Config) *World {
	t.Helper()
	w := &World{Net: network.New(), Trace: newTrace(), t: t, size: c, dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	if c.Log != nil {
		w.log = slog.New(slog.NewTextHandler(c.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	w.ended, w.end = context.WithCancel(context.Background())
	w.allEnded, w.still = make(chan struct{}), newStillness()
	w.Disk = newDisk(w)
	w.Redis = newRedis(w)
	w.Redis.Start()
	if c.Cloud != "" {
		w.Cloud = newCloud(w)
	}
	if c.Rental != nil {
		w.Rental = newRental(w)
	}
	for n := range c.Comfys {
		w.Comfys = append(w.Comfys, newComfy(w, fmt.Sprintf("comfy%d", n+1)))
	}
	for n := range c.Hubs {
		w.Hubs = append(w.Hubs, newHub(w, fmt.Sprintf("hub%d", n+1)))
	}
	for n := range c.Agents {
		w.Agents = append(w.Agents, newAgent(w, fmt.Sprintf("agent%d", n+1), w.Comfys[n]))
	}
	for _, h := range w.Hubs {
		h.Start()
	}
	for _, a := range w.Agents {
		a.Start()
	}
	for _, h := range w.Hubs {
		w.Until(time.Minute, h.name+" can use all servers", h.Whole)
	}
	return w
}

// Close ends everything and waits for it.
func (w *World) Close() {
	w.end()
	w.faults.Wait() // each heals, and may start something
	for _, h := range w.Hubs {
		h.Stop()
	}
	for _, a := range w.Agents {
		a.Stop()
	}
	for _, c := range w.Comfys {
		c.close()
	}
	if w.Cloud != nil {
		w.Cloud.Stop()
	}
	if w.Rental != nil {
		w.Rental.close()
	}
	w.Redis.Stop()
	w.work.Wait()
	<-time.After(time.Minute) // connections linger
}

// Until waits until something is so, and fails the test after a while of system time.
func (w *World) Until(within time.Duration, what string, so func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(within); !so(); <-time.After(50 * time.Millisecond) {
		require.True(w.t, time.Now().Before(deadline), "after %v of system time it is not so that %s", within, what)
	}
}

// sleep waits, and reports whether the world goes on.
func (w *World) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.ended.Done():
		return false
	}
}

func (w *World) folder(names ...string) string {
	return filepath.Join(append([]string{w.dir}, names...)...)
}

// HTTP is a client at a host.
func (w *World) HTTP(host string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: w.Net.Dialer(host), MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second}}
}
