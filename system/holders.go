package system

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
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
	o.leaveOthers()
}

// stray is a run that a hub follows although Redis says that it is not the hub's.
type stray struct{ hub, key string }

// strayFor is how long a hub may take to notice that a run is no longer its own: it renews its leases
// every five seconds.
const strayFor = 20 * time.Second

// leaveOthers checks that hubs follow only runs that are theirs.
func (o *observer) leaveOthers() {
	if raceDetector {
		return // it does not see that nobody else runs
	}
	o.w.still.look(o.lookForStrays)
}

func (o *observer) lookForStrays() {
	before := o.strayed
	o.strayed = map[stray]time.Time{}
	for _, h := range o.w.Hubs {
		if !o.w.weather.calm(believed, h.name, "redis") {
			continue
		}
		boot, keys := h.follows()
		for _, key := range keys {
			if o.held[key].Hub == boot {
				continue
			}
			s := stray{h.name, key}
			since, known := before[s]
			if !known {
				since = time.Now()
			}
			if o.strayed[s] = since; time.Since(since) > strayFor {
				o.ledger.breach(key, "%s has followed this run for %v although it is not its own", h.name, time.Since(since))
				o.strayed[s] = time.Now().Add(time.Hour) // once is enough
			}
		}
	}
}

// follows are the keys of the jobs whose runs a hub follows, and the name under which it holds them.
func (h *Hub) follows() (boot string, keys []string) {
	if h.running == nil {
		return "", nil
	}
	dispatcher := reflect.ValueOf(h.running).Elem().FieldByName("Dispatch").Elem()
	for _, key := range dispatcher.FieldByName("Runs").Elem().FieldByName("byJob").MapKeys() {
		keys = append(keys, key.String())
	}
	return dispatcher.FieldByName("Hub").String(), keys
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
