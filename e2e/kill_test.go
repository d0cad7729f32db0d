package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
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

// Six jobs wait and two run when the hub is killed: the next hub finishes all
// eight, and the running ones go on where they were.
func TestKillTheHub(t *testing.T) {
	t.Parallel()
	for name, redis := range map[string]func(*testing.T) string{
		"redis":    func(t *testing.T) string { return redistest.Start(t).URL() },
		"embedded": func(*testing.T) string { return "embedded" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, redis(t))
			f.startHub()
			f.startAgent("gpu", 2)
			f.idle(2)
			var ids []string
			for n := range 8 {
				ids = append(ids, f.submit(10, n))
			}
			f.running(2)
			f.Hub.Kill()
			f.startHub()
			f.succeeded(ids)
			f.attemptsOf(ids, 1)
		})
	}
}

// A machine is taken out of service with a run: that is finished first.
func TestStopAnAgent(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	agent := f.startAgent("gpu", 1, "--stop-timeout", "1m")
	f.idle(1)
	id := f.submit(30, 1)
	f.running(1)
	agent.Stop()
	f.succeeded([]string{id})
	f.attemptsOf([]string{id}, 1)
	require.Contains(t, agent.Log(), "waiting for running prompts")
}

// A hub is killed after it has claimed a job for a busy server, and before the server
// has it. Whether the post still arrives or not, another hub has the job run, once.
func TestHubIsKilledBetweenAClaimAheadAndItsPost(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"the post is lost": false, "the post arrives": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			one, two := newPair(t, server, programstest.Built(t), programstest.Built(t))
			joins(two, one)
			for _, f := range []*fleet{one, two} {
				f.configure("lookahead 1")
			}
			comfy := must.Get(freeport.Address())(t)
			_, port, _ := strings.Cut(comfy, ":")
			simulated := one.agent("comfy", "simulate", "--count", "1", "--port", port, "--log-level", "debug")
			serve := must.Get(freeport.Address())(t)
			between, second := holdSecondPost(t, comfy)
			one.startHub()
			one.agent("gpu", "run", "--join", one.Gossip, "--name", "gpu", "--comfyui", "gpu="+between, "--serve", serve)
			one.idle(1)
			ids := []string{uuid.NewString(), uuid.NewString()}
			one.post("ann", "/prompt", prompted(ids[0], "ann", blank, takes(12, "none", 0)))
			one.becomes("ann", ids[0], "running")
			one.post("ann", "/prompt", prompted(ids[1], "ann", blank, takes(1, "none", 1)))
			<-second.held // the hub has claimed the job, and the server does not know it yet
			two.startHub()
			two.eventually(func() bool {
				var all []struct{ Name, State string }
				return two.get("/hub/instances", &all) && len(all) == 1
			}, "the other hub sees the server")
			one.Hub.Kill()
			second.release <- arrives

			for _, id := range ids {
				two.becomes("ann", id, "done")
				require.Contains(t, string(two.fetch("ann", "/hub/jobs/"+id)), `"attempts": 1,`)
			}
			require.Equal(t, len(ids), strings.Count(simulated.Log(), "run starts"), simulated.Log())
		})
	}
}

// heldPost is a request that the test holds.
type heldPost struct {
	held    chan struct{} // closed when it is there
	release chan bool     // whether it goes on
}

// holdSecondPost starts a proxy in front of a server that holds the second prompt.
func holdSecondPost(t *testing.T, server string) (at string, second heldPost) {
	t.Helper()
	second = heldPost{make(chan struct{}), make(chan bool, 1)}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: server})
	var posts atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/prompt" || posts.Add(1) != 2 {
			proxy.ServeHTTP(w, r)
			return
		}
		body := http.MaxBytesReader(w, r.Body, 1<<20)
		text := new(strings.Builder)
		if _, err := io.Copy(text, body); err != nil {
			return
		}
		close(second.held)
		if !<-second.release {
			return
		}
		// The hub that sent it is gone, and the server gets it all the same.
		again, err := http.NewRequest(http.MethodPost, "http://"+server+"/prompt", strings.NewReader(text.String()))
		if err != nil {
			return
		}
		again.Header = r.Header.Clone()
		if answer, err := http.DefaultClient.Do(again); err == nil {
			w.WriteHeader(answer.StatusCode)
			answer.Body.Close()
		}
	}))
	t.Cleanup(web.Close)
	return web.URL, second
}

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

// tokens runs a command about the tokens of machines. The admin endpoint is in its environment.
func (f *fleet) tokens(args ...string) ([]byte, error) {
	cmd := exec.Command(f.Set.Caddy, append([]string{"token"}, args...)...) // #nosec G204 -- our own program
	cmd.Env = append(os.Environ(), "COMFYHUB_ADMIN="+f.Admin)
	return cmd.Output()
}

// token issues a token for a machine by the command that operators use, and returns its
// file.
func (f *fleet) token(machine string) string {
	f.t.Helper()
	token, err := f.tokens("add", machine)
	require.NoError(f.t, err)
	file := filepath.Join(f.t.TempDir(), machine)
	require.NoError(f.t, os.WriteFile(file, token, 0o600))
	return file
}

// pullFrom starts the agent of a machine whose way to the hub leads to an address.
func (f *fleet) pullFrom(machine, hub, comfyui string) *programs.Program {
	f.t.Helper()
	return f.agent(machine, "pull", "--hub", "http://"+hub, "--token-file", f.token(machine), "--comfyui", comfyui)
}

// Machines that nobody can dial run prompts like others, and go on when an agent or the hub dies.
func TestMachinesThatOnlyDialOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	attic := f.pullFrom("attic", f.Addr, f.simulate("attic"))
	f.pullFrom("cellar", f.Addr, f.simulate("cellar"))
	f.idle(2)
	ids := []string{f.submit(1, 1), f.submit(1, 2), f.submit(1, 3)}
	f.succeeded(ids)

	// The agent dies and comes back while its server works on.
	ids = append(ids, f.submit(15, 4), f.submit(15, 5))
	f.running(2)
	attic.Kill()
	require.NoError(t, attic.Restart())
	f.succeeded(ids)
	f.idle(2)
	f.attemptsOf(ids, 1)

	// The hub restarts: its machines find it again, and their runs go on.
	ids = append(ids, f.submit(15, 6), f.submit(15, 7))
	f.running(2)
	f.Hub.Kill()
	f.startHub()
	f.succeeded(ids)
	f.idle(2)

	// A machine whose token is revoked has nothing to say any more.
	list, err := f.tokens("list")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^MACHINE +ISSUED\nattic +20.*\ncellar +20.*\n$`, string(list))
	list, err = exec.Command(f.Set.Caddy, "comfyhub-token", "list", "--json", "--address", f.Admin).Output() // #nosec G204 -- our own program
	require.NoError(t, err, "the old name")
	require.Contains(t, string(list), `"machine":"attic"`)
	_, err = f.tokens("revoke", "attic")
	require.NoError(t, err)
	_, err = f.tokens("revoke", "attic")
	require.Error(t, err, "it has none")
	f.idle(1)
	f.succeeded(append(ids, f.submit(1, 8), f.submit(1, 9)))
}
