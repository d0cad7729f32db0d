package system

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// undisturbed is how long nothing must have happened to a hub's process for it to be known
// to live.
const undisturbed = time.Minute

// openRuns lets the observer read from Redis who holds which run.
func (o *observer) openRuns() (closeIt func()) {
	db, err := redis.Open(o.w.ended, redis.Options{URL: redisURL, Dial: o.w.Net.Dialer("observer")})
	require.NoError(o.w.t, err)
	o.runs, err = queue.New(db, queue.Options{})
	require.NoError(o.w.t, err)
	return func() { _ = db.Close() }
}

// keepRuns checks that a hub that lives has its runs until their leases end, although others
// may take over those of a hub that is gone.
func (o *observer) keepRuns() {
	if o.w.size.Clocks {
		return // leases end when Redis's clock says so
	}
	ctx, cancel := context.WithTimeout(o.w.ended, time.Second)
	defer cancel()
	runs, err := o.runs.Runs(ctx)
	before := o.held
	o.held = map[string]job.Run{}
	if err != nil {
		return
	}
	for _, now := range runs {
		o.held[now.Key] = now
		last, known := before[now.Key]
		if !known || last.Upstream != now.Upstream || last.Hub == now.Hub || now.Fence < last.Fence {
			continue // with a fence of before, Redis has only forgotten who took it over
		}
		left := time.UnixMilli(last.LeaseUntil).Sub(o.w.Redis.now())
		if name := o.holder(last.Hub); name != "" && left > 0 && o.w.weather.calm(undisturbed, processOf(name)) {
			o.ledger.breach(now.Key, "%s lives, and another hub has taken this run over from it, %v before its lease ends", name, left)
		}
	}
}

// holder is the host of a hub that holds runs under a name, empty if none does.
func (o *observer) holder(boot string) string {
	id, _, _ := strings.Cut(boot, "/")
	for _, h := range o.w.Hubs {
		files, _ := filepath.Glob(filepath.Join(h.data(), "hub-id-*"))
		if len(files) != 1 {
			continue
		}
		if b, err := os.ReadFile(files[0]); err == nil && strings.TrimSpace(string(b)) == id {
			return h.name
		}
	}
	return ""
}
