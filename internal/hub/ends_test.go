package hub

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// forgotten waits until a client's stream knows nothing more of its prompt, and returns the
// job's key.
func (b *bench) forgotten(k stream.Key, id string) (key string) {
	b.t.Helper()
	j := must(b.hub.jobs.Find(b.t.Context(), k.Tenant, id))(b.t)
	eventually(b.t, func() bool {
		told, running := b.hub.streams.Told(k, j.Key)
		return !told && !running
	}, time.Minute, time.Millisecond)
	return j.Key
}

// An end that is older than the replay window is not read again at each look, but a client whose
// socket has been open all along is told of it.
func TestOldEnds(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.ReplayWindow = time.Millisecond }), func(t *testing.T, b *bench) {
		began := time.Now()
		id := b.submit(picture(3), "ann")
		b.finished(id)
		k := stream.Key{Tenant: job.DefaultTenant, Client: "ann"}
		key := b.forgotten(k, id) // until then, it counts as told
		ends := must(b.hub.queue.Unconfirmed(t.Context(), []job.Requester{{Tenant: k.Tenant, Client: k.Client}}, 9))(t)
		require.Len(t, ends[0], 1)
		require.Equal(t, ends[0][0].Turn, must(b.hub.ends.LookAt(t.Context(), stream.Present{Key: k, Since: time.Now()}, ends[0], 0))(t))

		b.hub.streams.SetLimits(stream.Limits{ReplayWindow: time.Minute})
		eventually(t, func() bool {
			old, err := b.hub.ends.LookAt(t.Context(), stream.Present{Key: k, Since: began}, ends[0], 0)
			told, _ := b.hub.streams.Told(k, key)
			return err == nil && old == 0 && told
		}, time.Minute, 10*time.Millisecond)
		types := b.dial("ann").until(id)
		require.Equal(t, "execution_success", types[len(types)-2])
	})
}

// A client was away for longer than its stream is kept, and its prompt has ended
// shortly before it returns to the hub that ran it.
func TestOwnEndIsFoundInTheHistory(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		b.hub.streams.SetLimits(stream.Limits{ReplayWindow: time.Nanosecond})
		id := b.submit(picture(3), "ann")
		b.finished(id)
		b.forgotten(stream.Key{Tenant: job.DefaultTenant, Client: "ann"}, id)
		socket := b.dial("ann")
		types := socket.until(id)
		require.Equal(t, "execution_start", types[0])
		require.Equal(t, "execution_success", types[len(types)-2])
		requireDelivered(t, b, socket, id)
	})
}

// TestReadOnce: clients that open a socket for each prompt under one client id
// read up to the prompt's end and not the ping behind it. Whatever they do next,
// their next socket is not told the last prompt again.
func TestReadOnce(t *testing.T) {
	b := newBench(t, 1)
	b.dial("neighbour") // so that several clients are at one place from the start
	get := func(paths ...string) func(t *testing.T, c *client, id string) {
		return func(t *testing.T, c *client, id string) {
			for _, path := range paths {
				b.gets(path + id)
			}
			require.NoError(t, c.conn.CloseNow())
		}
	}
	for name, c := range map[string]struct {
		goOn func(t *testing.T, c *client, id string)
		// again means that nothing shows that the client has read it.
		again bool
	}{
		"closes in order":           {goOn: func(_ *testing.T, c *client, _ string) { _ = c.conn.Close(websocket.StatusNormalClosure, "") }},
		"fetches the history entry": {goOn: get("/history/")},
		"fetches it below /api":     {goOn: get("/api/history/")},
		"fetches the job":           {goOn: get("/api/jobs/")},
		"posts a prompt that is refused": {goOn: func(t *testing.T, c *client, _ string) {
			answered(b.post("/prompt", `{"prompt": {}, "client_id": "reads once and posts a prompt that is refused"}`))(t, http.StatusBadRequest)
			require.NoError(t, c.conn.CloseNow())
		}},
		"looks at another entry":           {goOn: get("/history/another"), again: true},
		"is cut off":                       {goOn: get(), again: true},
		"lists the history under its name": {goOn: get("/history?clientId=" + url.QueryEscape("reads once and lists the history under its name") + "&of=")},
		"lists the history beside others":  {goOn: get("/history?of="), again: true},
		"another one fetches it": {again: true, goOn: func(t *testing.T, c *client, id string) {
			b.gets("/history/" + id + "?clientId=another")
			require.NoError(t, c.conn.CloseNow())
		}},
		"fetches the picture, as many do before they read the end": {again: true, goOn: func(t *testing.T, c *client, id string) {
			// Reading the history under another name is not a receipt for this client.
			body := b.gets("/history/" + id + "?clientId=another")
			all := decoded[map[string]entry](t, body)
			b.gets("/view?type=output&filename=" + all[id].Outputs["2"].Images[0].Filename)
			require.NoError(t, c.conn.CloseNow())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			client := "reads once and " + name
			first := b.dial(url.QueryEscape(client))
			id := b.submit(picture(len(name)), client)
			first.until(id)
			c.goOn(t, first, id)
			next := b.dial(url.QueryEscape(client))
			if c.again {
				require.Equal(t, id, next.next().Data.PromptID)
				return
			}
			second := b.submit(picture(len(name)), client)
			require.Equal(t, second, next.next().Data.PromptID)
		})
	}
}

// TestPostAtAnotherHub: the hub that has a client's socket hears late of a prompt that was posted
// to another hub. The client may have made that POST before it was told the last end, started to
// read then, and lost its socket before it read the end. A waiting job that moves in the queue does
// not count as a POST either.
func TestPostAtAnotherHub(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		first := one.dial("me")
		id := one.submit(picture(1), "me")
		first.until(id)
		require.NoError(t, first.conn.CloseNow())
		two.finished(two.submit(picture(2), "me"))
		require.Equal(t, id, one.dial("me").next().Data.PromptID)
	})
}

// A client posts first and opens its socket long after the prompt has ended. It
// still gets all messages. The hub here is older than the replay window, so only
// the POST itself makes it keep the messages.
func TestSocketAfterTheEnd(t *testing.T) {
	inBench(t, benchOf(2, func(b *bench) { b.settings.ReplayWindow = 10 * time.Second }), func(t *testing.T, b *bench) {
		eventually(t, func() bool { return time.Since(b.hub.since) > b.settings.ReplayWindow }, time.Minute, 50*time.Millisecond)
		var wait sync.WaitGroup
		for n := range 16 {
			wait.Go(func() {
				name := fmt.Sprint("late", n)
				id := b.submit(picture(n), name)
				b.finished(id)
				types := b.dial(name).until(id)
				require.Equal(t, []string{"execution_start", "execution_cached"}, types[:2])
				require.Contains(t, types, "executed")
				require.Equal(t, "execution_success", types[len(types)-2])
			})
		}
		wait.Wait()
	})
}

// However a prompt ends, it is off the queue and in the history when its client is told:
// at the hub that has run it, and at the other one.
func TestOffTheQueueBeforeTheEndIsTold(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		runInBubble(t, fmt.Sprintf("away=%v", away), func(t *testing.T) {
			one, two := newPair(t, 1, 0)
			at := map[bool]*bench{false: one, true: two}[away]
			socket := at.dial("ann")
			for _, c := range []struct {
				graph, want string
				stop        func(id string)
			}{
				{work(1, 7, "none"), "execution_success", nil},
				{work(1, 8, "error"), "execution_error", nil},
				{endless(1), "execution_interrupted", func(id string) { one.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, id)) }},
				{endless(2), "execution_error", func(string) { // the server dies under it
					for n, first := 0, started(one); n < 3; n++ {
						eventually(t, func() bool { return started(one) == first+n }, time.Minute, time.Millisecond)
						one.instances[0].die()
						one.instances[0].revive()
					}
				}},
			} {
				before := started(one)
				id := at.submit(c.graph, "ann")
				eventually(t, func() bool { return started(one) > before }, time.Minute, time.Millisecond)
				if c.stop != nil {
					c.stop(id)
				}
				m := socket.next()
				for !slices.Contains([]string{"execution_success", "execution_error", "execution_interrupted"}, m.Type) {
					m = socket.next()
				}
				require.Equal(t, c.want, m.Type)
				for _, b := range []*bench{one, two} {
					require.NotContains(t, string(b.gets("/queue")), id, "it stands in the queue")
					_, found := b.history(id)
					require.True(t, found)
				}
			}
		})
	}
}
