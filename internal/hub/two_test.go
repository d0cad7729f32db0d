package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis/engine"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// newPair starts two hubs on one Redis, with one storage, as required. Each has
// instances that the other does not know.
func newPair(t *testing.T, atOne, atTwo int) (one, two *bench) {
	t.Helper()
	server := redisInMemory(t)
	one = newBench(t, atOne, func(b *bench) { b.id.Redis = server })
	two = newBench(t, atTwo, func(b *bench) {
		b.id.Redis, b.id.Storage = server, filepath.Join(one.id.Data, "files")
	})
	return one, two
}

// redisInMemory is the URL of a Redis that hubs of the test share: the embedded engine behind a
// listener in memory.
func redisInMemory(t testing.TB) string {
	t.Helper()
	e := must(engine.Open(engine.Options{Server: true, RunID: strings.Repeat("1", 40)}))(t)
	l := loopback.Listen()
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { e.Serve(c) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.NoError(t, e.Close())
		work.Wait()
	})
	// Nobody waits for a connection: go-redis shares the timers of those who do between all bubbles.
	return "redis://" + l.Addr().String() + "?pool_size=1000"
}

// heard is a message of any kind.
type heard struct {
	message
	binary []byte
}

// any returns the next message of any type.
func (c *client) any() heard {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	kind, frame, err := c.conn.Read(ctx)
	require.NoError(c.t, err)
	if kind == websocket.MessageBinary {
		return heard{binary: frame}
	}
	h := heard{message: message{raw: string(frame)}}
	require.NoError(c.t, json.Unmarshal(frame, &h.message), h.raw)
	return h
}

// sequence reads all messages of the next prompt to its end. Messages of other
// prompts may not come in between, but status may.
func (c *client) sequence() (id string, all []heard) {
	c.t.Helper()
	for {
		h := c.any()
		if h.Type == "status" {
			continue
		}
		all = append(all, h)
		if h.binary != nil {
			continue
		}
		if id == "" {
			id = h.Data.PromptID
		}
		require.Equal(c.t, id, h.Data.PromptID, "a foreign message: %s", h.raw)
		if h.Type == "executing" && h.Data.Node == nil {
			return id, all
		}
	}
}

// kept returns the types of the messages that are never dropped or merged, "binary" for a picture.
func kept(all []heard) (types []string) {
	for _, h := range all {
		if h.Type != "progress" && h.Type != "progress_state" && h.binary == nil {
			types = append(types, h.Type)
		}
	}
	return types
}

// A client's socket is at one hub and its jobs run at the other. The client sees
// the same as if the jobs ran where the socket is.
func TestSocketAtAnotherHub(t *testing.T) {
	t.Parallel()
	one, two := newPair(t, 1, 0)
	local := one.dial("local")
	here := one.submit(work(20, 1, "none"), "local")
	_, all := local.sequence()
	want := kept(all)
	require.Equal(t, "execution_start", want[0])
	e, ok := two.history(here)
	require.True(t, ok)
	two.gets("/view?filename=" + e.Outputs["3"].Images[0].Filename)
	for n, at := range []*bench{one, two} {
		t.Run(fmt.Sprint("posted at ", n+1), func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("first", n)
			socket := two.dial(name)
			id := at.submit(work(20, 2+n, "none"), name)
			got, all := socket.sequence()
			require.Equal(t, id, got)
			require.Equal(t, want, kept(all))
			progress, pictures := 0, 0
			for _, h := range all {
				if h.Type == "progress" {
					progress++
				}
				if h.binary != nil {
					pictures++
				}
			}
			require.Positive(t, progress)
			require.Positive(t, pictures, "previews, too")
			requireDelivered(t, two, socket, id)
		})
		t.Run(fmt.Sprint("posted at ", n+1, " before the socket"), func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("late", n)
			id := at.submit(work(20, 4+n, "none"), name)
			at.finished(id)
			socket := two.dial(name)
			got, all := socket.sequence()
			require.Equal(t, id, got)
			require.Equal(t, want, kept(all))
			requireDelivered(t, two, socket, id)
		})
	}
}

// requireDelivered reads on, so that pings are answered, until the record of a
// prompt has its receipt.
func requireDelivered(t *testing.T, b *bench, socket *client, id string) {
	t.Helper()
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		for {
			if _, _, err := socket.conn.Read(ctx); err != nil {
				return
			}
		}
	}()
	defer func() { cancel(); <-done }()
	eventually(t, func() bool {
		ctx := context.Background() // it may be asked once more after the test
		j, err := b.hub.jobs.Find(ctx, job.DefaultTenant, id)
		if err != nil {
			return false
		}
		records, err := b.hub.queue.EndedOf(ctx, []string{j.Key})
		return err == nil && len(records) == 1 && records[0].Delivered
	}, time.Minute, 5*time.Millisecond)
}

func TestSocketMovesToAnotherHub(t *testing.T) {
	t.Parallel()
	one, two := newPair(t, 1, 0)
	old := one.dial("ann")
	id := one.submit(work(3600, 1, "none"), "ann")
	require.Equal(t, "execution_start", old.next().Type)
	for _, to := range []*bench{two, one, two} {
		socket := to.dial("ann")
		require.Equal(t, "execution_start", socket.next().Type, "from the start")
		m := socket.next()
		require.Equal(t, id, m.Data.PromptID)
		old = socket
	}
	two.posts("/interrupt?clientId=ann", "")
	types := old.until(id)
	require.Equal(t, "execution_interrupted", types[len(types)-2])
	requireDelivered(t, two, old, id)
	// Messages that were received do not come again anywhere.
	again := one.dial("ann")
	next := one.submit(picture(7), "ann")
	got, _ := again.sequence()
	require.Equal(t, next, got)
}

// Jobs of one client run at both hubs at once. Its socket sees them one after the
// other, each whole.
func TestSerialAcrossHubs(t *testing.T) {
	t.Parallel()
	one, two := newPair(t, 1, 1)
	socket := two.dial("ann")
	var want, got []string
	for n := range 8 {
		at := []*bench{one, two}[n%2]
		want = append(want, at.submit(work(30, n, "none"), "ann"))
	}
	for range want {
		id, all := socket.sequence()
		got = append(got, id)
		types := kept(all)
		require.Equal(t, "execution_start", types[0])
		require.Equal(t, "execution_success", types[len(types)-2])
		require.Contains(t, types, "executed")
	}
	require.ElementsMatch(t, want, got, "each once")
	require.Positive(t, started(one))
	require.Positive(t, started(two))
}

// status counts the caller's jobs wherever they are posted and run.
func TestCountsAcrossHubs(t *testing.T) {
	t.Parallel()
	one, two := newPair(t, 1, 0)
	socket := two.dial("ann")
	remaining := func() int {
		for {
			if h := socket.any(); h.Type == "status" {
				s := decoded[struct {
					Data struct {
						Status struct {
							Info struct {
								Remaining int `json:"queue_remaining"`
							} `json:"exec_info"`
						}
					}
				}](t, h.raw)
				return s.Data.Status.Info.Remaining
			}
		}
	}
	until := func(want int) {
		t.Helper()
		for remaining() != want {
		}
	}
	require.Zero(t, remaining())
	running := one.submit(work(3600, 1, "none"), "ann")
	until(1)
	one.submit(work(3600, 2, "none"), "bob")
	waiting := two.submit(work(3600, 3, "none"), "ann")
	until(2)
	one.posts("/queue", fmt.Sprintf(`{"delete": [%q]}`, waiting))
	until(1)
	one.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, running))
	until(0)
}

// Results that exist only on the socket cross hubs whole, whatever their size.
func TestLargeResultsAcrossHubs(t *testing.T) {
	t.Parallel()
	one, two := newPair(t, 1, 0)
	noise := image.NewRGBA(image.Rect(0, 0, 640, 480))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range noise.Pix {
		noise.Pix[i] = byte(random.Uint32())
	}
	for y := range 480 {
		for x := range 640 {
			c := noise.RGBAAt(x, y)
			noise.SetRGBA(x, y, color.RGBA{c.R, c.G, c.B, 255})
		}
	}
	var file bytes.Buffer
	require.NoError(t, png.Encode(&file, noise))
	status, name := one.upload("noise.png", "", file.String())
	require.Equal(t, http.StatusOK, status)
	graph := fmt.Sprintf(`{"1": {"class_type": "LoadImage", "inputs": {"image": %q}},
		"2": {"class_type": "SaveImageWebsocket", "inputs": {"images": ["1", 0]}}}`, name)
	socket := two.dial("ann")
	id := one.submit(graph, "ann")
	got, all := socket.sequence()
	require.Equal(t, id, got)
	pictures := 0
	for _, h := range all {
		if h.binary == nil {
			continue
		}
		require.Greater(t, len(h.binary), 256<<10)
		shown := must(png.Decode(bytes.NewReader(h.binary[8:])))(t)
		require.Equal(t, noise.Bounds(), shown.Bounds())
		for _, at := range []image.Point{{0, 0}, {639, 479}, {320, 100}} {
			require.Equal(t, noise.At(at.X, at.Y), color.RGBAModel.Convert(shown.At(at.X, at.Y)))
		}
		pictures++
	}
	require.Equal(t, 1, pictures)
	keys := must(one.hub.db.Client().Keys(t.Context(), one.hub.db.Key("s", "parcel", "*")).Result())(t)
	require.Empty(t, keys)
}

// Two hubs that share a data folder are two.
func TestIDsOnOneFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	one := must(New(Identity{Data: folder, GossipBind: "127.0.0.1:0"}).ownID())(t)
	two := must(New(Identity{Data: folder, GossipBind: "localhost:0"}).ownID())(t)
	require.NotEqual(t, one, two)
	again := must(New(Identity{Data: folder, GossipBind: "127.0.0.1:0"}).ownID())(t)
	require.Equal(t, one, again)
}
