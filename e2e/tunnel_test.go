package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// token issues a token for a machine by the command that operators use, and returns its
// file.
func (f *fleet) token(machine string) string {
	f.t.Helper()
	token, err := exec.Command(f.Set.Caddy, "comfyhub-token", "add", machine, "--address", f.Admin).Output() // #nosec G204 -- our own program
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
	ids = append(ids, f.submit(30, 4), f.submit(30, 5))
	f.running(2)
	attic.Kill()
	require.NoError(t, attic.Restart())
	f.succeeded(ids)
	f.idle(2)
	f.attemptsOf(ids, 1)

	// The hub restarts: its machines find it again, and their runs go on.
	ids = append(ids, f.submit(30, 6), f.submit(30, 7))
	f.running(2)
	f.Hub.Kill()
	f.startHub()
	f.succeeded(ids)
	f.idle(2)

	// A machine whose token is revoked has nothing to say any more.
	require.NoError(t, exec.Command(f.Set.Caddy, "comfyhub-token", "revoke", "attic", "--address", f.Admin).Run()) // #nosec G204 -- our own program
	f.idle(1)
	f.succeeded(append(ids, f.submit(1, 8), f.submit(1, 9)))
}

// route is the network between two programs. While it is held nothing passes, in either
// direction: connections stay open, new ones are accepted, and nobody is told. What was sent
// meanwhile arrives when it heals, as TCP sends it again.
type route struct {
	listener net.Listener
	target   string
	done     sync.WaitGroup

	mu      sync.Mutex
	flowing chan struct{} // closed unless the route is held
	conns   []net.Conn
	closed  bool
}

func newRoute(t *testing.T, target string) *route {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	r := &route{listener: l, target: target, flowing: make(chan struct{})}
	close(r.flowing)
	r.done.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

func (r *route) address() string { return r.listener.Addr().String() }

func (r *route) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flowing = make(chan struct{})
}

func (r *route) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.flowing:
	default:
		close(r.flowing)
	}
}

func (r *route) close() {
	r.listener.Close()
	r.heal()
	r.mu.Lock()
	r.closed = true
	for _, c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.done.Wait()
}

func (r *route) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.done.Go(func() { r.connect(client) })
	}
}

// passes waits until the route is not held.
func (r *route) passes() {
	r.mu.Lock()
	flowing := r.flowing
	r.mu.Unlock()
	<-flowing
}

func (r *route) connect(client net.Conn) {
	defer client.Close()
	r.passes()
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer server.Close()
	r.mu.Lock()
	r.conns = append(r.conns, client, server)
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { r.pass(server, client) })
	both.Go(func() { r.pass(client, server) })
	both.Wait()
}

// pass copies one direction, and ends the connection with it, neither while the route is
// held.
func (r *route) pass(to, from net.Conn) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		r.passes()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// ended reads a client's messages up to the end of the last prompt. It returns how each
// prompt has ended, each time, and how many pictures came over the socket since it began for
// the last time.
func (f *fleet) ended(conn *websocket.Conn, last string) (ends map[string][]string, pictures map[string]int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	ends, pictures = map[string][]string{}, map[string]int{}
	for open := ""; ; {
		kind, frame, err := conn.Read(ctx)
		require.NoError(f.t, err, "after %v", ends)
		if kind == websocket.MessageBinary {
			if strings.Contains(string(frame), "\x89PNG") {
				pictures[open]++
			}
			continue
		}
		var m struct {
			Type string
			Data struct {
				PromptID string `json:"prompt_id"`
				Node     *string
			}
		}
		require.NoError(f.t, json.Unmarshal(frame, &m))
		id := m.Data.PromptID
		switch m.Type {
		case "execution_start":
			open, pictures[id] = id, 0
		case "execution_success", "execution_error", "execution_interrupted":
			ends[id] = append(ends[id], m.Type)
		case "executing":
			if id == last && m.Data.Node == nil {
				return ends, pictures
			}
		}
	}
}

// has reports whether a ComfyUI server has the record of a run, of any prompt.
func (f *fleet) has(comfyui string, runs int) bool {
	resp, err := http.Get(comfyui + "/history")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	var all map[string]json.RawMessage
	return err == nil && json.Unmarshal(body, &all) == nil && len(all) == runs
}

// offline waits until the hub has given up the tunnel of a machine.
func (f *fleet) offline(machine string) {
	f.t.Helper()
	f.eventually(func() bool {
		var all []struct{ Name, State string }
		if !f.get("/hub/instances", &all) {
			return false
		}
		for _, i := range all {
			if i.Name == machine && i.State == "offline" {
				return true
			}
		}
		return false
	}, machine+" is offline")
}

// What passes a tunnel is swallowed until the hub takes it for dead, and the prompt ends at
// its server meanwhile. Then the network heals. The prompt ends once, with its picture, and
// has run once; a picture that went over the socket only is made again.
func TestTunnelIsSwallowed(t *testing.T) {
	t.Parallel()
	for save, runs := range map[string]int{"SaveImage": 1, "SaveImageWebsocket": 2} {
		t.Run(save, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "embedded")
			f.startHub()
			network := newRoute(t, f.Addr)
			comfyui := f.simulate("attic")
			f.pullFrom("attic", network.address(), comfyui)
			f.idle(1)
			conn := f.listen("ann", "ann")
			first, next := uuid.NewString(), uuid.NewString()
			f.post("ann", "/prompt", strings.Replace(prompted(first, "ann", blank, takes(25, "none", 1)), "SaveImage", save, 1))
			f.becomes("ann", first, "running")

			network.hold()
			f.eventually(func() bool { return f.has(comfyui, 1) }, "the prompt ends at its server")
			f.offline("attic")
			require.Equal(t, "running", f.status("ann", first), "the hub does not know the end")
			network.heal()

			f.becomes("ann", first, "done")
			f.post("ann", "/prompt", prompted(next, "ann", blank, takes(1, "none", 2)))
			ends, pictures := f.ended(conn, next)
			require.Equal(t, map[string][]string{first: {"execution_success"}, next: {"execution_success"}}, ends)
			require.Equal(t, runs-1, pictures[first])
			f.attemptsOfTenant("ann", first, 1)
			if save == "SaveImage" {
				f.shows("ann", first)
			}
			require.Equal(t, runs+1, f.simulatedRuns("attic"))
		})
	}
}

func (f *fleet) attemptsOfTenant(tenant, id string, attempts int) {
	f.t.Helper()
	var j struct{ Attempts int }
	require.NoError(f.t, json.Unmarshal(f.fetch(tenant, "/hub/jobs/"+id), &j))
	require.Equal(f.t, attempts, j.Attempts)
}

// shows checks that a prompt shows one picture, and that it can be fetched.
func (f *fleet) shows(tenant, id string) {
	f.t.Helper()
	var all map[string]struct {
		Outputs map[string]struct {
			Images []struct{ Filename, Type string }
		}
	}
	require.NoError(f.t, json.Unmarshal(f.fetch(tenant, "/history/"+id), &all))
	images := all[id].Outputs["3"].Images
	require.Len(f.t, images, 1)
	require.Contains(f.t, string(f.fetch(tenant, "/view?filename="+images[0].Filename+"&type="+images[0].Type)), "PNG")
}
