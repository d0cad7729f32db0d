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

// Ends that are too old to be told are not read again at each look.
func TestOldEndsAreSkipped(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.ReplayWindow = time.Millisecond }), func(t *testing.T, b *bench) {
		id := b.submit(picture(3), "ann")
		b.finished(id)
		k := stream.Key{Tenant: job.DefaultTenant, Client: "ann"}
		ends := must(b.hub.queue.Unconfirmed(t.Context(), []job.Requester{{Tenant: k.Tenant, Client: k.Client}}, 9))(t)
		require.Len(t, ends[0], 1)
		// Until the stream has forgotten it, it counts as told.
		eventually(t, func() bool {
			old, err := b.hub.ends.LookAt(t.Context(), stream.Present{Key: k, Since: time.Now()}, ends[0], 0)
			return err == nil && old == ends[0][0].Turn
		}, time.Minute, time.Millisecond)
	})
}

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

// A client whose socket has been open all along is told of an end even if nobody could tell it for
// longer than the replay window.
func TestWaitingClientIsToldLate(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.ReplayWindow = time.Millisecond }), func(t *testing.T, b *bench) {
		began := time.Now()
		id := b.submit(picture(3), "ann")
		b.finished(id)
		k := stream.Key{Tenant: job.DefaultTenant, Client: "ann"}
		key := b.forgotten(k, id)
		b.hub.streams.SetLimits(stream.Limits{ReplayWindow: time.Minute})
		ends := must(b.hub.queue.Unconfirmed(t.Context(), []job.Requester{{Tenant: k.Tenant, Client: k.Client}}, 9))(t)
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
	for name, c := range map[string]struct {
		graph string
		stop  func(b *bench, id string)
		want  string
	}{
		"success": {work(1, 7, "none"), nil, "execution_success"},
		"error":   {work(1, 7, "error"), nil, "execution_error"},
		"interrupted": {endless(1), func(b *bench, id string) {
			eventually(b.t, func() bool { return started(b) == 1 }, time.Minute, time.Millisecond)
			b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, id))
		}, "execution_interrupted"},
		"the server died": {endless(1), func(b *bench, _ string) {
			for n := range 3 {
				eventually(b.t, func() bool { return started(b) == n+1 }, time.Minute, time.Millisecond)
				b.instances[0].die()
				b.instances[0].revive()
			}
		}, "execution_error"},
	} {
		for _, away := range []bool{false, true} {
			runInBubble(t, fmt.Sprintf("%s/away=%v", name, away), func(t *testing.T) {
				one, two := newPair(t, 1, 0)
				at := one
				if away {
					at = two
				}
				socket := at.dial("ann")
				id := at.submit(c.graph, "ann")
				if c.stop != nil {
					c.stop(one, id)
				}
				ends := []string{"execution_success", "execution_error", "execution_interrupted"}
				for {
					m := socket.next()
					if !slices.Contains(ends, m.Type) {
						continue
					}
					require.Equal(t, c.want, m.Type)
					for _, b := range []*bench{one, two} {
						resp, err := http.Get(b.web.URL + "/queue")
						require.NoError(t, err)
						_, body := read(t, resp)
						require.NotContains(t, string(body), id, "it stands in the queue")
						_, found := b.history(id)
						require.True(t, found)
					}
					return
				}
			})
		}
	}
}
