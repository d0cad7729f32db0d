package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

// A hub is killed or hangs while ten servers run its prompts. The other hub takes them
// over long before their leases end, by the clock of the leases, and nothing runs twice,
// by the log of the servers. A hub that only hung leaves them alone when it goes on.
func TestLostHubIsTakenOverBeforeItsLeasesEnd(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*programs.Program) (again func()){
		"killed": func(hub *programs.Program) func() { hub.Kill(); return func() {} },
		"hangs":  func(hub *programs.Program) func() { hub.Pause(); return hub.Resume },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takenOver(t, lose)
		})
	}
}

func takenOver(t *testing.T, lose func(*programs.Program) (again func())) {
	const count = 10
	server := redistest.Start(t)
	one, two := newPair(t, server, programstest.Built(t), programstest.Built(t))
	joins(two, one)
	one.startHub()
	instances := must.Get(freeport.Addresses(count))(t)
	serve := must.Get(freeport.Address())(t)
	_, port, _ := strings.Cut(instances, ":")
	servers := one.agent("gpu", "run", "--join", one.Gossip, "--name", "gpu", "--log-level", "debug",
		"--simulate", strconv.Itoa(count), "--port", port, "--serve", serve, "--time-scale", "0.2")
	one.idle(count)
	var ids []string
	for n := range count { // the other hub does not run yet, so all are of this one
		id := uuid.NewString()
		ids = append(ids, id)
		one.post("ann", "/prompt", prompted(id, "ann", blank, takes(3600, "none", n)))
	}
	for _, id := range ids {
		one.becomes("ann", id, "running")
	}
	two.startHub()
	two.eventually(func() bool {
		var all []struct{ Name, State string }
		return two.get("/hub/instances", &all) && len(all) == count
	}, "the other hub sees the servers")

	c := client(t, server)
	ctx := t.Context()
	leases := func() map[string]float64 {
		all := must.Get(c.ZRangeWithScores(ctx, root+"q:leases", 0, -1).Result())(t)
		until := map[string]float64{}
		for _, lease := range all {
			until[fmt.Sprint(lease.Member)] = lease.Score
		}
		return until
	}
	holders := func() map[string]string {
		hubs := map[string]string{}
		for key := range leases() {
			hubs[key] = must.Get(c.HGet(ctx, root+"q:job:"+key, "hub").Result())(t)
		}
		return hubs
	}
	require.Len(t, holders(), count)
	before := leases()
	two.eventually(func() bool {
		for key, until := range leases() {
			if until <= before[key] {
				return false
			}
		}
		return true
	}, "the leases have just been renewed")
	before, old := leases(), holders()
	began := time.Now()
	again := lose(one.Hub)
	two.eventually(func() bool {
		for key, hub := range holders() {
			if hub == old[key] {
				return false
			}
		}
		return true
	}, "the other hub has the runs")
	took := time.Since(began)
	now := must.Get(c.Time(ctx).Result())(t)
	for key, until := range before {
		require.Less(t, float64(now.UnixMilli()), until, "the lease of %s had not ended", key)
	}
	t.Logf("%d runs were taken over in %s", count, took.Round(time.Millisecond))
	again()
	for _, id := range ids { // the other hub follows them: it can stop them, and hears that they have ended
		require.Contains(t, string(two.fetch("ann", "/hub/jobs/"+id)), `"attempts": 1,`)
		two.post("ann", "/hub/jobs/"+id+"/cancel", "")
	}
	for _, id := range ids {
		two.becomes("ann", id, "cancelled")
	}
	require.Equal(t, count, strings.Count(servers.Log(), "run starts"), servers.Log())
}

// joins makes a hub that has not started yet look for another one.
func joins(f, other *fleet) {
	f.t.Helper()
	text := must.Get(os.ReadFile(f.Set.Caddyfile))(f.t)
	const bind = "bind {$COMFYHUB_GOSSIP:127.0.0.1:7946}\n"
	require.Contains(f.t, string(text), bind)
	f.Set.Caddyfile = filepath.Join(f.Dir, "joined.Caddyfile")
	text = []byte(strings.Replace(string(text), bind, bind+"\t\t\tjoin "+other.Gossip+"\n", 1))
	require.NoError(f.t, os.WriteFile(f.Set.Caddyfile, text, 0o600))
}
