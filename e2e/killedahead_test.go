package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

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
