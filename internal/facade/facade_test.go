package facade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// scripted is a backend that does what a test wants.
type scripted func(ctx context.Context, r *Run) error

func (scripted) ObjectInfo() []byte {
	return []byte(`{"Work": {"input": {"required": {"image": ["STRING", {}]}}, "output": [], "output_node": true}, "Idle": {"input": {}, "output": ["IMAGE"], "output_node": false}}`)
}

func (scripted) About() About {
	return About{Version: "0.3.64", Device: "a worker", VRAMTotal: 8 << 30, VRAMFree: 7 << 30}
}

func (s scripted) Execute(ctx context.Context, r *Run) error { return s(ctx, r) }

// bench is a server with a hub's client and event socket.
type bench struct {
	t      *testing.T
	server *Server
	*comfyui.Client
	socket *comfyui.Socket
}

func newBench(t *testing.T, backend scripted) *bench {
	t.Helper()
	server := must.Get(New(backend, t.TempDir()+"/files"))(t)
	site := httptest.NewServer(server)
	client := must.Get(comfyui.NewClient(site.URL, comfyui.Options{}))(t)
	socket := must.Get(client.Dial(t.Context(), "the-hub"))(t)
	t.Cleanup(func() {
		socket.Close()
		server.Close()
		client.Close()
		site.Close()
	})
	return &bench{t, server, client, socket}
}

const graph = `{"1": {"class_type": "Idle", "inputs": {}}, "7": {"class_type": "Work", "inputs": {"image": "x.png"}}}`

func (b *bench) submit(id string) {
	b.t.Helper()
	reply, err := b.Submit(b.t.Context(), fmt.Appendf(nil, `{"prompt": %s, "prompt_id": %q, "client_id": "the-hub", "extra_data": {"comfyhub": {"job": "j", "fence": 3}}}`, graph, id))
	require.NoError(b.t, err)
	require.Equal(b.t, id, reply.PromptID)
}

// types reads messages until one of the given type, and returns the types of a prompt's
// messages.
func (b *bench) types(until string) []string {
	b.t.Helper()
	var types []string
	for {
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
		frame, err := b.socket.Next(ctx)
		cancel()
		require.NoError(b.t, err)
		if frame.Binary {
			types = append(types, "picture")
			continue
		}
		m, ok := comfyui.ParseMessage(frame.Data)
		require.True(b.t, ok)
		if m.Type != comfyui.TypeStatus {
			types = append(types, m.Type)
		}
		if m.Type == until && (until != comfyui.TypeExecuting || m.NodeNull) {
			return types
		}
	}
}

func (b *bench) entry(id string) comfyui.Entry {
	b.t.Helper()
	var e comfyui.Entry
	require.Eventually(b.t, func() bool {
		raw, found, err := b.History(b.t.Context(), id)
		if err != nil || !found {
			return false
		}
		e, _ = comfyui.ParseEntry(raw)
		return true
	}, 20*time.Second, time.Millisecond)
	return e
}

func TestSuccess(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(_ context.Context, r *Run) error {
		in, err := r.Input("x.png")
		if err != nil {
			return err
		}
		content, err := io.ReadAll(in)
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
		r.Progress("7", 1, 2)
		r.Preview([]byte("a picture"))
		return r.Save("7", "done", ".png", strings.NewReader(string(content)+" done"))
	})
	stored, err := b.Upload(t.Context(), job.FileRef{Type: "input", Filename: "x.png"}, true, strings.NewReader("input"), 5)
	require.NoError(t, err)
	require.Equal(t, "x.png", stored.Filename)
	b.submit("p")
	require.Equal(t, []string{
		"execution_start", "execution_cached", "executing", "progress_state", "progress", "picture", "executed", "execution_success", "executing",
	}, b.types(comfyui.TypeExecuting)[:9:9])
	e := b.entry("p")
	require.Equal(t, "success", e.Status)
	require.True(t, e.Completed)
	require.Equal(t, comfyui.TypeExecutionSuccess, e.End)
	require.Equal(t, comfyui.Mark{Job: "j", Fence: 3}, e.Mark)
	require.Equal(t, []string{"7"}, e.Wanted)
	require.Contains(t, string(e.Outputs), "done_p_")
	name := string(e.Outputs)[strings.Index(string(e.Outputs), "done_p_"):]
	ref := job.FileRef{Type: "output", Filename: name[:strings.Index(name, `"`)]}
	resp := must.Get(b.View(t.Context(), ref, nil))(t)
	content, err := io.ReadAll(resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	require.Equal(t, "input done", string(content))
	require.NoError(t, b.DeleteHistory(t.Context(), "p"))
	_, found, err := b.Stat(t.Context(), ref)
	require.NoError(t, err)
	require.False(t, found, "outputs go with the history")
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a node's":  {&Failure{Node: "1", Type: "ValueError", Message: "no"}, `"node_id": "1", "node_type": "Idle"`},
		"any other": {errors.New("no"), `"node_id": "7", "node_type": "Work"`},
		"no node":   {&Failure{Node: "99", Type: "ValueError", Message: "no"}, `"node_id": "7"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(context.Context, *Run) error { return c.err })
			b.submit("p")
			b.types(comfyui.TypeExecutionError)
			e := b.entry("p")
			require.Equal(t, "error", e.Status)
			require.Equal(t, comfyui.TypeExecutionError, e.End)
			require.Contains(t, string(e.EndData), c.want)
			require.Contains(t, string(e.EndData), `"exception_message": "no"`)
		})
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(ctx context.Context, _ *Run) error { <-ctx.Done(); return ctx.Err() })
	b.submit("p")
	b.submit("next")
	b.types(comfyui.TypeExecutionCached)
	q := must.Get(b.Queue(t.Context()))(t)
	require.Equal(t, "p", q.Running[0].ID)
	require.Equal(t, "next", q.Pending[0].ID)
	require.Equal(t, comfyui.Mark{Job: "j", Fence: 3}, q.Pending[0].Mark)
	require.NoError(t, b.DeleteQueued(t.Context(), "next"))
	require.NoError(t, b.Interrupt(t.Context(), "another"))
	require.NoError(t, b.Interrupt(t.Context(), "p"))
	b.types(comfyui.TypeExecutionInterrupted)
	require.Equal(t, comfyui.TypeExecutionInterrupted, b.entry("p").End)
	_, found, err := b.History(t.Context(), "next")
	require.NoError(t, err)
	require.False(t, found)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(ctx context.Context, _ *Run) error { <-ctx.Done(); return ctx.Err() })
	for _, body := range []string{
		`{}`, `[]`, `{"prompt": {}}`, `{"prompt": {"1": {"class_type": "Idle", "inputs": {}}}}`, `{"prompt": {"1": 3}}`, `no`,
		`{"prompt": ` + graph + `, "partial_execution_targets": ["1"]}`,
	} {
		_, err := b.Submit(t.Context(), []byte(body))
		require.Error(t, err, body)
	}
	for n := range maxQueue + 1 {
		_, err := b.Submit(t.Context(), fmt.Appendf(nil, `{"prompt": %s}`, graph))
		if err == nil && n == 0 {
			require.Eventually(t, func() bool {
				n, err := b.QueueRemaining(t.Context())
				q, qErr := b.Queue(t.Context())
				return err == nil && qErr == nil && n == 1 && len(q.Running) == 1
			}, 20*time.Second, time.Millisecond)
		}
		require.NoError(t, err)
	}
	_, err := b.Submit(t.Context(), fmt.Appendf(nil, `{"prompt": %s}`, graph))
	require.Error(t, err, "the queue is bounded")
}

func TestNoNameLeadsOutside(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"output", "..", "x"},
		{"output", "a/../..", "x"},
		{"output", "", ".."},
		{"output", "", "a/b"},
		{"", "..", "x"},
		{"../output", "", "x"},
		{"secret", "", "x"},
		{"input", "/etc", "passwd"},
		{"input", "", ""},
		{"input", "", "."},
		{"input", "..\\..", "x"},
	} {
		full, ok := place(c[0], c[1], c[2])
		if ok {
			require.NotContains(t, full, "..", c)
			require.True(t, strings.HasPrefix(full, "input/") || strings.HasPrefix(full, "output/"), c)
		}
	}
	b := newBench(t, func(context.Context, *Run) error { return nil })
	for _, name := range []string{"../x", "/etc/passwd", "..", "", "a/../../x [output]"} {
		_, err := b.server.files.openInput(name)
		require.Error(t, err, name)
	}
}

func TestUploadsOfOneName(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(context.Context, *Run) error { return nil })
	ref := job.FileRef{Type: "input", Subfolder: "a", Filename: "x.png"}
	var names sync.Map
	for n := range 3 {
		stored := must.Get(b.Upload(t.Context(), ref, false, strings.NewReader(fmt.Sprint(n)), 1))(t)
		_, twice := names.LoadOrStore(stored.Filename, n)
		require.False(t, twice)
	}
	stored := must.Get(b.Upload(t.Context(), ref, true, strings.NewReader("new"), 3))(t)
	require.Equal(t, "x.png", stored.Filename)
}

// What a hub's watch sees of it is what it sees of any ComfyUI.
func TestWatched(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := newBench(t, func(ctx context.Context, _ *Run) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	seen := make(chan comfyui.Observation, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		comfyui.Watch(ctx, b.Client, comfyui.WatchOptions{}, func(o comfyui.Observation) { seen <- o })
	})
	defer watch.Wait()
	defer cancel()
	until := func(holds func(comfyui.Observation) bool) {
		t.Helper()
		for {
			select {
			case o := <-seen:
				if holds(o) {
					return
				}
			case <-time.After(time.Minute):
				t.Fatal("never seen")
			}
		}
	}
	until(func(o comfyui.Observation) bool {
		return o.Idle() && o.ObjectInfoHash != "" && o.GPU == "a worker" && o.VRAMTotal == 8<<30
	})
	b.submit("p")
	until(func(o comfyui.Observation) bool { return o.RunningMark.Job == "j" && o.Foreign == 0 })
	close(release)
	until(comfyui.Observation.Idle)
}
