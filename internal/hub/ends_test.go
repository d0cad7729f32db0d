package hub_test

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

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// forgotten waits until a client's stream knows nothing more of its prompt, and returns the
// job's key.
func (b *bench) forgotten(k stream.Key, id string) (key string) {
	b.t.Helper()
	j := must(b.hub.Jobs.Find(b.t.Context(), k.Tenant, id))(b.t)
	eventually(b.t, func() bool {
		told, running := b.hub.Streams.Told(k, j.Key)
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
		ends := must(b.hub.Queue.Unconfirmed(t.Context(), []job.Requester{{Tenant: k.Tenant, Client: k.Client}}, 9))(t)
		require.Len(t, ends[0], 1)
		require.Equal(t, ends[0][0].Turn, must(b.hub.Ends.LookAt(t.Context(), stream.Present{Key: k, Since: time.Now()}, ends[0], 0))(t))

		b.hub.Streams.SetLimits(stream.Limits{ReplayWindow: time.Minute})
		eventually(t, func() bool {
			old, err := b.hub.Ends.LookAt(t.Context(), stream.Present{Key: k, Since: began}, ends[0], 0)
			told, _ := b.hub.Streams.Told(k, key)
			return err == nil && old == 0 && told
		}, time.Minute, 10*time.Millisecond)
		types := b.dial("ann").until(id)
		require.Equal(t, "execution_success", types[len(types)-2])
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

// A client posts first and opens its socket long after the prompt has ended. It
// still gets all messages. The hub here is older than the replay window, so only
// the POST itself makes it keep the messages.
func TestSocketAfterTheEnd(t *testing.T) {
	inBench(t, benchOf(2, func(b *bench) { b.settings.ReplayWindow = 10 * time.Second }), func(t *testing.T, b *bench) {
		eventually(t, func() bool { return time.Since(b.hub.Since()) > b.settings.ReplayWindow }, time.Minute, 50*time.Millisecond)
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

// A prompt waiting at an instance is shown as waiting, and is removed like a waiting one.
func TestLookaheadIsPending(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.Lookahead = 1 }), func(t *testing.T, b *bench) {
		running := b.begins(endless(1), "ann")
		stored := func(id string) job.Job {
			return must(b.hub.Queue.Find(t.Context(), job.DefaultTenant, id))(t)
		}
		ahead := func(id string) {
			t.Helper()
			eventually(t, func() bool { return stored(id).Ahead }, time.Minute, time.Millisecond)
		}
		next := b.submit(endless(2), "ann")
		ahead(next)
		want := listings{[]string{running}, []string{next}}
		require.Equal(t, want, b.listed("ann"))
		_, body := b.get("/hub/jobs/" + next)
		require.Contains(t, string(body), `"status": "queued"`)
		require.Contains(t, string(body), `"position": 0`)

		// As in ComfyUI, an interrupt means what runs.
		b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, next))
		require.Equal(t, want, b.listed("ann"))
		b.posts("/queue", fmt.Sprintf(`{"delete": [%q], "client_id": "ann"}`, next))
		require.Equal(t, listings{[]string{running}, []string{}}, b.listed("ann"))
		_, ended := b.history(next)
		require.False(t, ended)

		last := b.submit(picture(3), "ann")
		ahead(last)
		b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, running))
		require.Equal(t, "success", b.finished(last).Status.Text)
		require.Equal(t, 2, started(b))
	})
}

// TestInterruptBetweenClaimAndStart interrupts jobs as soon as their clients can see them run. An
// instance ignores an interrupt for a prompt that it has not begun.
func TestInterruptBetweenClaimAndStart(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		for n := range 8 {
			id := b.submit(endless(n), "ann")
			eventually(t, func() bool {
				j, err := b.hub.Queue.Find(t.Context(), job.DefaultTenant, id)
				return err == nil && j.State != job.Queued
			}, time.Minute, 100*time.Microsecond)
			b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, id))
			e := b.finished(id)
			last := e.Status.Messages[len(e.Status.Messages)-1]
			require.JSONEq(t, `"execution_interrupted"`, string(last[0]), "attempt %d", n)
		}
	})
}

// The request to end a job can arrive after its claim and before anybody listens
// for it. The run must see it when it begins, not when it next renews its lease.
func TestWishBeforeTheRunListens(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		b.instances[0].die()
		eventually(t, func() bool { return stateOf(b, b.instances[0]) == fleet.Offline }, time.Minute, time.Millisecond)
		id := b.submit(endless(1), "ann")
		j := must(b.hub.Queue.Find(t.Context(), job.DefaultTenant, id))(t)
		require.Equal(t, job.Queued, j.State)
		require.NoError(t, b.hub.DB.Client().HSet(t.Context(), b.hub.DB.Key("q", "job", j.Key), "cancel", "1").Err())
		b.instances[0].revive()
		e := b.finished(id)
		last := e.Status.Messages[len(e.Status.Messages)-1]
		require.JSONEq(t, `"execution_interrupted"`, string(last[0]))
	})
}

// patch changes a job and returns what the hub answers.
func (b *bench) patch(id, change string, header http.Header) (status int, body string) {
	b.t.Helper()
	status, _, body = b.ask(http.MethodPatch, "/hub/jobs/"+id, change, header)
	return status, body
}

type steered struct {
	Status   string
	Position *int
	ETA      *float64
	Priority int
	Paused   bool
	Error    string
}

func (b *bench) steer(id, change string) steered {
	b.t.Helper()
	return decoded[steered](b.t, answered(b.patch(id, change, nil))(b.t, http.StatusOK))
}

func TestSteer(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		long := b.submit(endless(1), "ann")
		eventually(t, func() bool { return b.explain(long).State == "running" }, time.Minute, 10*time.Millisecond)
		first, second, third := b.submit(picture(2), "ann"), b.submit(picture(3), "ann"), b.submit(picture(4), "ann")

		j := b.steer(first, `{"paused": true}`)
		require.Equal(t, steered{Status: "queued", Paused: true, Error: "it is paused; its owner can resume it"}, j)
		require.Equal(t, "it is paused; its owner can resume it", b.explain(first).Reason)
		require.Nil(t, b.explain(first).Position)
		require.Contains(t, b.text("/queue"), first, "it is pending for clients that know nothing of this")
		require.Zero(t, *b.steer(third, `{"position": "front"}`).Position)
		require.Equal(t, 1, *b.explain(second).Position)
		require.Equal(t, 7, b.steer(second, `{"priority": 7}`).Priority)
		require.Zero(t, *b.explain(second).Position)

		// Neither a page of another site, nor another tenant.
		answered(b.patch(second, `{"paused": true}`, http.Header{"Origin": {"https://evil.example"}}))(t, http.StatusForbidden)
		b.tenant = "another tenant"
		answered(b.patch(second, `{"paused": true}`, nil))(t, http.StatusNotFound)
		b.tenant = ""
		require.Contains(t, answered(b.patch(long, `{"paused": true}`, nil))(t, http.StatusConflict), "The job is not waiting")

		b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, long))
		b.finished(second)
		b.finished(third)
		require.Equal(t, "queued", b.explain(first).State)
		answered(b.patch(second, `{"paused": true}`, nil))(t, http.StatusConflict, "it has ended")
		b.steer(first, `{"paused": false}`)
		b.finished(first)
	})
}
