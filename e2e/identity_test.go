package e2e

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// admin asks the hub's admin endpoint.
func (f *fleet) admin(method, path string) (status int, body []byte) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, "http://"+f.Admin+path, nil)
	require.NoError(f.t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	body, _ = io.ReadAll(resp.Body) // the test fails if part of it is missing
	return resp.StatusCode, body
}

func logged(p *programs.Program, text string) func() bool {
	return func() bool { return strings.Contains(p.Log(), text) }
}

// A stolen machine has the fleet's key. With it, it does not get the name of
// another machine, neither while that one is alive nor later. A machine that
// was set up again gets its name back from the operator.
func TestAnotherMachineOfOneName(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.Env = append(f.Env, "COMFYHUB_GOSSIP_KEY=the key of the whole fleet")
	f.startHub()
	mine := []string{"--state", filepath.Join(f.Dir, "mine")}
	box := f.startAgent("box", 1, mine...)
	f.idle(1)
	jobs := []string{f.submit(0.1, 1)}
	f.succeeded(jobs)

	thief := f.agent("thief", "run", "--join", f.Gossip, "--name", "box", "--simulate", "1", "--state", filepath.Join(f.Dir, "thiefs"))
	f.eventually(logged(f.Hub, "the name belongs to an agent with another key"), "the hub says so")
	f.eventually(logged(thief, "a hub refuses this agent"), "and so does the agent")
	f.idle(1)
	jobs = append(jobs, f.submit(0.1, 2))
	f.succeeded(jobs)
	status, _ := f.admin(http.MethodPost, "/comfyhub/forget?agent=box")
	require.Equal(t, http.StatusConflict, status, "it is alive")

	box.Kill()
	f.Hub.Kill()
	f.startHub()
	refused := func() bool {
		var list []struct{ Name, State, Reason string }
		_, body := f.admin(http.MethodGet, "/comfyhub/instances")
		return json.Unmarshal(body, &list) == nil && len(list) == 1 && list[0].State == "offline" &&
			strings.Contains(list[0].Reason, "POST /comfyhub/forget?agent=box")
	}
	f.eventually(refused, "the thief is refused by a hub that has never seen the machine")
	box = f.startAgent("box", 1, mine...)
	f.idle(1)
	jobs = append(jobs, f.submit(0.1, 3))
	f.succeeded(jobs)

	box.Stop()
	f.eventually(refused, "nor does it when the machine leaves")
	status, body := f.admin(http.MethodPost, "/comfyhub/forget?agent=box")
	require.Equal(t, http.StatusOK, status, string(body))
	f.idle(1)
	f.succeeded(append(jobs, f.submit(0.1, 4)))
}

// A stolen machine has the fleet's key, which makes it no hub: once a machine knows its hubs,
// it answers nobody else, also after a restart and while no hub is there. A machine that was
// given the hubs' key listens to nobody else from the beginning.
func TestOnlyHubsReachMachines(t *testing.T) {
	t.Parallel()
	const key = "the key of the whole fleet"
	f := newFleet(t, "embedded")
	f.Env = append(f.Env, "COMFYHUB_GOSSIP_KEY="+key)
	f.startHub()
	state := []string{"--state", filepath.Join(f.Dir, "state")}
	box := f.startAgent("box", 1, state...)
	f.idle(1)
	jobs := []string{f.submit(0.1, 1)}
	f.succeeded(jobs)
	address := func() string {
		var list []struct{ URL string }
		_, body := f.admin(http.MethodGet, "/comfyhub/instances")
		require.NoError(t, json.Unmarshal(body, &list), string(body))
		require.Len(t, list, 1)
		u, err := url.Parse(list[0].URL)
		require.NoError(t, err)
		require.Equal(t, "https", u.Scheme)
		return u.Host
	}
	at := address()
	group := groupCertificate(t, key)
	for _, path := range []string{"/i/box/queue", "/i/box/view?filename=a.png", "/i/box/internal/files/output", "/restart/box"} {
		require.ErrorContains(t, knock(t, at, path, group), "bad certificate", path)
	}
	f.eventually(logged(box, "shows nothing but the gossip key"), "its operator is told")

	f.Hub.Kill()
	box.Kill()
	box = f.startAgent("box", 1, append(state, "--serve", at)...)
	f.eventually(func() bool {
		err := knock(t, at, "/i/box/queue", group)
		require.Error(t, err, "no hub has called it yet")
		return strings.Contains(err.Error(), "bad certificate")
	}, "it runs again")
	f.startHub()
	f.idle(1)
	jobs = append(jobs, f.submit(0.1, 2))
	f.succeeded(jobs)

	status, body := f.admin(http.MethodGet, "/comfyhub/hub-key")
	require.Equal(t, http.StatusOK, status, string(body))
	var hubs struct{ Key string }
	require.NoError(t, json.Unmarshal(body, &hubs))
	box.Stop()
	box = f.startAgent("box", 1, "--state", filepath.Join(f.Dir, "state"), "--hub-key", strings.Repeat("A", 43))
	f.eventually(logged(box, "refused a hub whose key is not that of this agent's hubs"), "another fleet's")
	box.Stop()
	f.startAgent("box", 1, "--state", filepath.Join(f.Dir, "state"), "--hub-key", hubs.Key)
	f.idle(1)
	f.succeeded(append(jobs, f.submit(0.1, 3)))
}

// groupCertificate is what the fleet's key alone makes.
func groupCertificate(t *testing.T, key string) tls.Certificate {
	t.Helper()
	seed, err := hkdf.Key(sha256.New, []byte(key), nil, "comfyhub agent tls v1", ed25519.SeedSize)
	require.NoError(t, err)
	pair := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	template.Subject.CommonName = "comfyhub"
	der, err := x509.CreateCertificate(rand.Reader, template, template, pair.Public(), pair)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: pair}
}

// knock calls an agent over a connection of its own.
func knock(t *testing.T, host, path string, as tls.Certificate) error {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{as}}} // whoever answers
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+path, nil)
	require.NoError(t, err)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
