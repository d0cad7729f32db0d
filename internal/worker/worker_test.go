package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	objectInfo = `{"Work": {"input": {"required": {}}, "output": [], "output_node": true}}`
	graph      = `{"prompt": {"7": {"class_type": "Work", "inputs": {"filename_prefix": "a/b%c"}}}, "prompt_id": "%s"}`
)

// bench is a worker with the hub's client of its facade.
type bench struct {
	*Worker

	t      *testing.T
	client *comfyui.Client
}

func newBench(t *testing.T, o Options) *bench {
	t.Helper()
	o.Dir, o.ObjectInfo, o.Version = t.TempDir()+"/files", []byte(objectInfo), "0.3.64"
	w := must.Get(New(o))(t)
	client := must.Get(comfyui.NewClient("http://worker", comfyui.Options{Dial: w.Dial}))(t)
	t.Cleanup(func() { w.Close(); client.Close() })
	return &bench{w, t, client}
}

// post posts a prompt at the facade.
func (b *bench) post(id string) {
	b.t.Helper()
	_, err := b.client.Submit(b.t.Context(), []byte(strings.ReplaceAll(graph, "%s", id)))
	require.NoError(b.t, err)
}

// next waits for a job.
func (b *bench) next() Job {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	j, err := b.Next(ctx, 0)
	require.NoError(b.t, err)
	return j
}

// ends waits for the end of a prompt in the history of the facade.
func (b *bench) ends(id string) comfyui.Entry {
	b.t.Helper()
	var e comfyui.Entry
	require.Eventually(b.t, func() bool {
		raw, found, err := b.client.History(b.t.Context(), id)
		if err != nil || !found {
			return false
		}
		e, _ = comfyui.ParseEntry(raw)
		return true
	}, time.Minute, time.Millisecond)
	return e
}

func TestNextAndComplete(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{})
	now, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Next(now, 0)
	require.ErrorIs(t, err, context.Canceled)
	b.post("p")
	j := b.next()
	require.Equal(t, "p", j.ID)
	require.Equal(t, []string{"7"}, j.Outputs)
	_, err = b.Next(t.Context(), 0)
	require.ErrorIs(t, err, ErrHolds)
	require.True(t, b.Holds("p"))
	for _, c := range []struct{ node, name string }{{"", "x"}, {"", ".."}, {"", "x./../y"}, {"8", "x.png"}, {"", "x.way-too-long-1"}} {
		require.ErrorIs(t, b.Save("p", c.node, c.name, strings.NewReader("x")), ErrOutput, c)
	}
	b.task.left.Store(3)
	require.ErrorIs(t, b.Save("p", "", "x.png", strings.NewReader("four")), ErrOutput, "all files together are bounded")
	b.task.left.Store(maxBytes)
	require.NoError(t, b.Save("p", "", "../../x.png", strings.NewReader("x")))
	for _, result := range []string{`{"outputs": {"8": {"text": []}}}`, `{"outputs": {"7": 3}}`, `{"outputs": {"7": {"text": 3}}}`, `{"outputs": {"7": {"images": [{"filename": "x.png"}]}}}`} {
		v := must.Get(pyjson.Parse([]byte(result)))(t)
		require.ErrorIs(t, b.Complete("p", v), ErrOutput, result)
	}
	require.NoError(t, b.Complete("p", pyjson.String("fine")))
	require.ErrorIs(t, b.Complete("p", nil), ErrNotHeld)
	require.ErrorIs(t, b.Renew("p", Progress{}), ErrNotHeld)
	e := b.ends("p")
	require.True(t, e.Completed)
	require.Contains(t, string(e.Outputs), `"ComfyUI_p_`, "the prefix is none that can be used")
	require.Contains(t, string(e.Outputs), `"result": ["fine"]`)
}

// A job that was not received is given again.
func TestReturn(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{})
	b.post("p")
	b.Return("p") // nobody has it yet
	require.Equal(t, "p", b.next().ID)
	b.Return("another")
	require.True(t, b.Holds("p"))
	b.Return("p")
	require.False(t, b.Holds("p"))
	require.Equal(t, "p", b.next().ID)
	require.NoError(t, b.Fail("p", facade.Failure{Type: "ValueError", Message: "no"}))
	require.Equal(t, "error", b.ends("p").Status)
}

// A cancelled job ends at once if nobody has it, and else once the worker has been told.
func TestCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{})
	b.post("early")
	require.Eventually(t, func() bool {
		q, err := b.client.Queue(t.Context())
		return err == nil && len(q.Running) == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, b.client.Interrupt(t.Context(), "early"))
	require.Equal(t, comfyui.TypeExecutionInterrupted, b.ends("early").End)
	for n, told := range []func(id string) error{
		func(id string) error { return b.Renew(id, Progress{}) },
		func(id string) error { return b.Complete(id, nil) },
		func(id string) error { return b.Save(id, "", "x.png", strings.NewReader("x")) },
		func(string) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := b.Next(ctx, 0)
			return errors.Join(ErrCancelled, err)
		},
	} {
		id := fmt.Sprint(n)
		b.post(id)
		require.Equal(t, id, b.next().ID)
		require.NoError(t, b.client.Interrupt(t.Context(), id))
		require.Eventually(t, func() bool { return b.task.ctx.Err() != nil }, time.Minute, time.Millisecond)
		_, found, err := b.client.History(t.Context(), id)
		require.NoError(t, err)
		require.False(t, found, "the worker works on it")
		require.ErrorIs(t, told(id), ErrCancelled)
		require.Equal(t, comfyui.TypeExecutionInterrupted, b.ends(id).End)
	}
}

// A job that was completed just before it was cancelled has been completed.
func TestCompletedBeforeCancelled(t *testing.T) {
	t.Parallel()
	for range 50 { // whichever is seen first
		b := newBench(t, Options{})
		b.post("p")
		b.next()
		b.mu.Lock()
		b.server.Interrupt("p")
		b.end(b.task, nil)
		b.mu.Unlock()
		require.True(t, b.ends("p").Completed)
	}
}

// A worker that says nothing while it has a job is gone, and how the job ends nobody is told:
// to the hub it is a ComfyUI whose process was killed.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{Lease: 50 * time.Millisecond})
	socket, err := b.client.Dial(t.Context(), "the-hub")
	require.NoError(t, err)
	defer socket.Close()
	b.post("p")
	b.next()
	select {
	case <-b.Gone():
	case <-time.After(time.Minute):
		t.Fatal("it is still there")
	}
	b.Close()
	_, err = b.client.Queue(t.Context())
	require.ErrorIs(t, err, comfyui.ErrGone)
	for {
		f, err := socket.Next(t.Context())
		if err != nil {
			break
		}
		for _, end := range []string{comfyui.TypeExecutionError, comfyui.TypeExecutionInterrupted, comfyui.TypeExecutionSuccess} {
			require.NotContains(t, string(f.Data), end)
		}
	}
	_, err = b.Next(t.Context(), 0)
	require.ErrorIs(t, err, ErrGone)
}

// A worker is there while it waits for a job, and a while longer.
func TestSilence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, err := New(Options{Dir: dir + "/files", ObjectInfo: []byte(objectInfo)})
		require.NoError(t, err)
		defer w.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = w.Next(ctx, 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		began := time.Now()
		<-w.Gone()
		require.Equal(t, defaultSilence, time.Since(began))
	})
}

// One worker asks a bounded number of things at once.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{})
	b.post("p")
	b.next()
	read, write := io.Pipe()
	defer write.Close()
	for range maxRequests {
		go func() { _ = b.Save("p", "", "x.png", read) }()
	}
	require.Eventually(t, func() bool { return errors.Is(b.Renew("p", Progress{}), ErrBusy) }, time.Minute, time.Millisecond)
}
