package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// enclosure is a network of its own, with nothing but loopback. What runs in it can reach
// one address outside, by way of its gateway, and nobody can reach into it.
type enclosure struct {
	t  *testing.T
	do chan func()
	// gateway is where the hub is, as seen from inside.
	gateway string
}

// enclose makes a network from which only a TCP address outside can be dialed. It skips the
// test where that takes rights that the test has not.
func enclose(t *testing.T, outside string) *enclosure {
	t.Helper()
	e := &enclosure{t: t, do: make(chan func())}
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks it: the thread ends with the network
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = upLoopback()
		}
		entered <- err
		for f := range e.do {
			f()
		}
	}()
	t.Cleanup(func() { close(e.do) })
	if err := <-entered; err != nil {
		t.Skip("a network namespace takes root: ", err)
	}
	var inside net.Listener
	e.within(func() (err error) { inside, err = net.Listen("tcp", "127.0.0.1:80"); return err })
	t.Cleanup(func() { inside.Close() })
	e.gateway = "http://" + inside.Addr().String()
	go forward(inside, outside)
	return e
}

// within does something inside. Programs that it starts run there.
func (e *enclosure) within(f func() error) {
	e.t.Helper()
	done := make(chan error)
	e.do <- func() { done <- f() }
	require.NoError(e.t, <-done)
}

// upLoopback switches on the loopback interface of a new network.
func upLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

// forward passes on what is dialed at a listener, until that is closed.
func forward(l net.Listener, to string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				defer in.Close()
				_, _ = io.Copy(in, out)
			}()
			_, _ = io.Copy(out, in)
		}()
	}
}

// enclosed starts a machine in a network of its own: a simulated instance, and its agent,
// which is returned.
func (f *fleet) enclosed(machine string) (agent *programs.Program, e *enclosure) {
	f.t.Helper()
	e = enclose(f.t, f.Addr)
	token := f.token(machine)
	e.within(func() error {
		_, err := f.Start(programs.Spec{
			OnThread: true,
			Name:     machine + "-comfyui", Path: f.Set.Agent,
			Args: []string{"simulate", "--count", "1", "--port", "8188", "--time-scale", "0.2", "--preview-method", "auto"},
		})
		if err == nil {
			agent, err = f.Start(programs.Spec{
				OnThread: true,
				Name:     machine, Path: f.Set.Agent,
				Args: []string{"pull", "--hub", e.gateway, "--token-file", token, "--comfyui", "http://127.0.0.1:8188"},
			})
		}
		return err
	})
	return agent, e
}

// watched is what the socket of a client has shown of its prompts.
type watched struct {
	progress, previews int
	ends               map[string][]string // messages that end a prompt, by prompt
}

// watch reads the socket of a client until stop is called, which returns what it has shown.
func (f *fleet) watch(client string) (stop func() watched) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	conn, _, err := websocket.Dial(ctx, "ws://"+f.Addr+"/ws?clientId="+client, nil)
	require.NoError(f.t, err)
	conn.SetReadLimit(-1)
	seen := make(chan watched)
	go func() {
		w := watched{ends: map[string][]string{}}
		for {
			kind, data, err := conn.Read(ctx)
			if err != nil {
				seen <- w
				return
			}
			if kind == websocket.MessageBinary {
				if bytes.Contains(data, []byte("\xff\xd8\xff")) { // a JPEG
					w.previews++
				}
				continue
			}
			var m struct {
				Type string
				Data struct {
					PromptID string `json:"prompt_id"`
				}
			}
			_ = json.Unmarshal(data, &m)
			switch m.Type {
			case "progress":
				w.progress++
			case "execution_success", "execution_error", "execution_interrupted":
				w.ends[m.Data.PromptID] = append(w.ends[m.Data.PromptID], m.Type)
			}
		}
	}()
	return func() watched { cancel(); return <-seen }
}

// place returns where a job runs or has run.
func (f *fleet) place(id string) (instance string, attempts int) {
	f.t.Helper()
	var job struct {
		Instance string
		Attempts int
	}
	require.True(f.t, f.get("/hub/jobs/"+id, &job))
	return job.Instance, job.Attempts
}

// Three machines that can only dial out serve prompts like any others. One dies with a run:
// the run is repeated on another machine, and when the dead one comes back, its late end
// changes nothing.
func TestMachinesBehindNAT(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	names := []string{"attic", "cellar", "garage"}
	agents, networks := map[string]*programs.Program{}, map[string]*enclosure{}
	for _, name := range names {
		agents[name], networks[name] = f.enclosed(name)
	}
	f.idle(3)
	stop := f.watch("c1")
	long := f.submit(85, 1) // 17 s: longer than the hub waits for a machine during a run
	f.running(1)
	before, _ := f.place(long)
	doomed := machineOf(names, before)
	require.NotEmpty(t, doomed, before)
	agents[doomed].Kill()
	ids := []string{long}
	for n := range 6 { // the others go on meanwhile
		ids = append(ids, f.submit(1, 2+n))
	}
	f.eventually(func() bool { _, attempts := f.place(long); return attempts == 2 }, "the run begins again")
	networks[doomed].within(agents[doomed].Restart)
	f.succeeded(ids)
	after, attempts := f.place(long)
	require.Equal(t, 2, attempts)
	require.NotEqual(t, before, after)
	f.idle(3)
	f.succeeded(append(ids, f.submit(1, 8), f.submit(1, 9), f.submit(1, 10)))
	seen := stop()
	require.Equal(t, map[string][]string{long: {"execution_success"}}, seen.ends, "its client is told of one end")
	require.Positive(t, seen.progress)
	require.Positive(t, seen.previews)
}

// machineOf returns which of the machines an instance is on.
func machineOf(names []string, instance string) string {
	for _, name := range names {
		if len(instance) >= len(name) && instance[:len(name)] == name {
			return name
		}
	}
	return ""
}
