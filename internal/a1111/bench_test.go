package a1111

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// bench is a simulated server behind a facade, with a hub's client and event socket.
type bench struct {
	t    *testing.T
	sd   *simsd.Server
	addr string
	kill func()
	*comfyui.Client
	socket *comfyui.Socket
}

func decoded(t testing.TB, text string) string {
	t.Helper()
	return string(must.Get(base64.StdEncoding.DecodeString(text))(t))
}

// newBench starts an instance for a test that runs beside others.
func newBench(t *testing.T, c simsd.Config) *bench {
	t.Helper()
	t.Parallel()
	b := &bench{t: t, sd: simsd.New(c), addr: "127.0.0.1:0"}
	b.start()
	i := must.Get(Open("http://"+b.addr, Options{Dir: t.TempDir() + "/files", Every: 5 * time.Millisecond}))(t)
	b.Client = must.Get(comfyui.NewClient("http://a1111", comfyui.Options{Dial: i.Dial}))(t)
	b.connect()
	t.Cleanup(func() {
		b.kill()
		i.Close()
		b.socket.Close()
		b.Close()
	})
	return b
}

// start starts the process, at the same address as before.
func (b *bench) start() {
	ln := must.Get(net.Listen("tcp", b.addr))(b.t)
	b.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.sd.Serve(ctx, ln) }()
	b.kill = func() { cancel(); <-done }
}

func (b *bench) connect() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var err error
		b.socket, err = b.Dial(b.t.Context(), "the-hub")
		return err == nil
	}, time.Minute, 5*time.Millisecond)
}

// submit submits the graph of a request whose pictures are stored before, as a hub does.
func (b *bench) submit(id, class, payload, checkpoint string, loras ...string) {
	b.t.Helper()
	g := must.Get(Graph(class, parsed(b.t, payload), checkpoint, loras))(b.t)
	for id, v := range g.All() {
		if node, _ := v.(*pyjson.Object); node.String("class_type") == ClassImage {
			inputs := node.Object("inputs")
			content, _, ok := pictureIn(inputs.String(inputImage))
			require.True(b.t, ok)
			ref := job.FileRef{Type: "input", Subfolder: "embedded", Filename: id + ".png"}
			must.Get(b.Upload(b.t.Context(), ref, true, strings.NewReader(decoded(b.t, content)), int64(len(decoded(b.t, content)))))(b.t)
			inputs.Set(inputImage, pyjson.String("embedded/"+ref.Filename))
		}
	}
	must.Get(b.Submit(b.t.Context(), fmt.Appendf(nil, `{"prompt": %s, "prompt_id": %q, "client_id": "the-hub", "extra_data": {"comfyhub": {"job": "j", "fence": 3}}}`, pyjson.Marshal(g), id)))(b.t)
}

// entry waits for the end of a prompt.
func (b *bench) entry(id string) (comfyui.Entry, *pyjson.Object) {
	b.t.Helper()
	var e comfyui.Entry
	require.Eventually(b.t, func() bool {
		raw, found, err := b.History(b.t.Context(), id)
		if err != nil || !found {
			return false
		}
		e, _ = comfyui.ParseEntry(raw)
		return true
	}, time.Minute, 5*time.Millisecond)
	return e, parsed(b.t, string(e.Outputs))
}

// answer is the answer to a request, put together from what its job shows.
func (b *bench) answer(id, class string) *pyjson.Object {
	b.t.Helper()
	e, outputs := b.entry(id)
	require.Equal(b.t, "success", e.Status)
	return written(b.t, class, outputs.Object(JobNode), func(file *pyjson.Object) (io.ReadCloser, error) {
		resp, err := b.View(b.t.Context(), job.FileRef{Type: file.String("type"), Filename: file.String("filename")}, nil)
		if err != nil {
			return nil, err
		}
		return resp.Body, nil
	})
}

// written is an answer as clients get it.
func written(t testing.TB, class string, output *pyjson.Object, open func(file *pyjson.Object) (io.ReadCloser, error)) *pyjson.Object {
	t.Helper()
	a := must.Get(ReadAnswer(class, output))(t)
	var out bytes.Buffer
	sizes := map[int]int64{}
	require.NoError(t, a.Write(&out, func(place int) (io.ReadCloser, error) {
		content := must.Get(open(a.Pictures[place]))(t)
		data, err := io.ReadAll(content)
		sizes[place] = int64(len(data))
		return io.NopCloser(bytes.NewReader(data)), err
	}))
	require.Equal(t, int64(out.Len()), a.Length(func(place int) int64 { return sizes[place] }))
	return parsed(t, out.String())
}
