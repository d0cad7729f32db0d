package hub_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis/engine"
	"github.com/comfyhub/comfyhub/internal/sim"
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
		if h.binary == nil {
			id = cmp.Or(id, h.Data.PromptID)
			require.Equal(c.t, id, h.Data.PromptID, "a foreign message: %s", h.raw)
		}
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
		j, err := b.hub.Jobs.Find(ctx, job.DefaultTenant, id)
		if err != nil {
			return false
		}
		records, err := b.hub.Queue.EndedOf(ctx, []string{j.Key})
		return err == nil && len(records) == 1 && records[0].Delivered
	}, time.Minute, 5*time.Millisecond)
}

// Results that exist only on the socket cross hubs whole, whatever their size.
func TestLargeResultsAcrossHubs(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		noise := image.NewRGBA(image.Rect(0, 0, 640, 480))
		random := rand.New(rand.NewPCG(1, 2))
		for i := range noise.Pix {
			noise.Pix[i] = byte(random.Uint32())
			if i%4 == 3 {
				noise.Pix[i] = 255
			}
		}
		var file bytes.Buffer
		require.NoError(t, png.Encode(&file, noise))
		name := answered(one.upload("noise.png", "", file.String()))(t, http.StatusOK)
		graph := strings.Replace(loading(name), `"SaveImage", "inputs": {`, `"SaveImageWebsocket", "inputs": {`, 1)
		socket := two.dial("ann")
		id := one.submit(graph, "ann")
		got, all := socket.sequence()
		require.Equal(t, id, got)
		all = slices.DeleteFunc(all, func(h heard) bool { return h.binary == nil })
		require.Len(t, all, 1)
		require.Greater(t, len(all[0].binary), 256<<10)
		shown := must(png.Decode(bytes.NewReader(all[0].binary[8:])))(t)
		require.Equal(t, noise.Bounds(), shown.Bounds())
		for _, at := range []image.Point{{0, 0}, {639, 479}, {320, 100}} {
			require.Equal(t, noise.At(at.X, at.Y), color.RGBAModel.Convert(shown.At(at.X, at.Y)))
		}
		require.Empty(t, must(one.hub.DB.Client().Keys(t.Context(), one.hub.DB.Key("s", "parcel", "*")).Result())(t))
		requireDelivered(t, two, socket, id)
	})
}

// kill acts like kill -9 for a hub: nothing that it does or says reaches the other hubs any more.
func (b *bench) kill() {
	b.t.Helper()
	require.NoError(b.t, b.hub.DB.Close())
	b.stop()
}

// A picture went only over a socket, and the hub that had it is killed. Its client is told that the
// picture is lost, not that all is well, even if it posts the prompt again.
func TestPictureOfAKilledHub(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		graph := strings.Replace(picture(3), "SaveImage", "SaveImageWebsocket", 1)
		id := uuid.NewString()
		post := func(b *bench) {
			b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "ann", "prompt_id": %q}`, graph, id))
		}
		post(one)
		one.finished(id)
		one.kill()
		socket := two.dial("ann")
		told := func() {
			t.Helper()
			got, all := socket.sequence()
			require.Equal(t, id, got)
			require.NotContains(t, kept(all), "execution_success")
			failed := slices.IndexFunc(all, func(h heard) bool { return h.Type == "execution_error" })
			require.Contains(t, all[failed].raw, "was lost on its way")
			require.Contains(t, all[failed].raw, `"node_type": "SaveImageWebsocket"`)
		}
		told()
		requireDelivered(t, two, socket, id)
		socket = two.dial("ann")
		post(two)
		told()
	})
}

// A hub accepts what only another hub's instance can run, and lets it wait for that
// instance. It refuses what no hub's instance can run.
func TestPromptForAnotherHubsInstance(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		two.settings.Instances = []string{newInstance(t, sim.Config{OmitClasses: []string{"SimulatedWork"}}).url()}
		require.NoError(t, two.hub.Start(t.Context(), two.settings))
		two.connected(1)
		eventually(t, func() bool { return slices.Contains(two.hub.Inventory.Catalog().Classes(), "SimulatedWork") }, time.Minute, 10*time.Millisecond)
		require.Equal(t, "success", two.finished(two.submit(work(1, 7, "none"), "ann")).Status.Text)
		require.Equal(t, 1, started(one))
		require.Equal(t, http.StatusBadRequest, statusOf(two.post("/prompt", `{"prompt": {"1": {"class_type": "Nowhere", "inputs": {}}}}`)))
	})
}

// A socket with live events, of a site or by its own wish, sees two jobs that run at the same time:
// both before either ends.
func TestLiveEvents(t *testing.T) {
	t.Parallel()
	for query, option := range map[string]bool{"": true, "&events=live": false} {
		runInBubble(t, query, func(t *testing.T) {
			b := newBench(t, 2, func(b *bench) { b.live = option })
			socket := b.dial("ann" + query)
			seen := map[string]int{b.submit(endless(1), "ann"): 0, b.submit(endless(2), "ann"): 0}
			for slices.Min(slices.Collect(maps.Values(seen))) < 3 {
				m := socket.next()
				require.Contains(t, seen, m.Data.PromptID, m.raw)
				seen[m.Data.PromptID]++
			}
			for id := range seen {
				b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, id))
			}
		})
	}
}
