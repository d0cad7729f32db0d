package hub

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// The hub ends jobs for any dialect, so this test makes no request.
func TestCancelWithoutARequest(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		ctx, cancel := t.Context(), b.hub.Canceller()
		runs := b.begins(endless(1), "ann")
		waits := b.submit(endless(2), "ann")
		find := func(id string) job.Job {
			return must(b.hub.Jobs().FindLive(ctx, job.DefaultTenant, id))(t)
		}
		running, waiting := find(runs), find(waits)

		gone := must(cancel.CancelWaiting(ctx, running, waiting))(t)
		require.Equal(t, map[string]bool{waiting.Key: true}, gone, "what runs is left alone")
		require.Empty(t, find(waits).Key)

		hit := must(cancel.Cancel(ctx, job.DefaultTenant, runs))(t)
		require.True(t, hit)
		require.Equal(t, "error", b.finished(runs).Status.Text)
		for _, id := range []string{runs, waits, "unknown"} { // there is nothing left to end
			hit = must(cancel.Cancel(ctx, job.DefaultTenant, id))(t)
			require.False(t, hit, id)
		}
		require.NoError(t, cancel.Stop(ctx, waiting), "a job that is gone is none to stop")

		hidden := b.begins(endless(3), "bob")
		require.NoError(t, cancel.Withdraw(ctx, find(hidden), false))
		require.Empty(t, find(hidden).Key)
		next := b.submit(picture(1), "bob") // the instance is free again
		require.Equal(t, "success", b.finished(next).Status.Text)
		_, ended := b.history(hidden)
		require.False(t, ended, "a job that is withdrawn leaves no trace")
	})
}

// A prompt waiting at an instance is shown as waiting, and is removed like a waiting one.
func TestLookaheadIsPending(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.Lookahead = 1 }), func(t *testing.T, b *bench) {
		running := b.begins(endless(1), "ann")
		stored := func(id string) job.Job {
			return must(b.hub.queue.Find(t.Context(), job.DefaultTenant, id))(t)
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
		for n := range 20 {
			id := b.submit(endless(n), "ann")
			eventually(t, func() bool {
				j, err := b.hub.queue.Find(t.Context(), job.DefaultTenant, id)
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
		j := must(b.hub.queue.Find(t.Context(), job.DefaultTenant, id))(t)
		require.Equal(t, job.Queued, j.State)
		require.NoError(t, b.hub.db.Client().HSet(t.Context(), b.hub.db.Key("q", "job", j.Key), "cancel", "1").Err())
		b.instances[0].revive()
		e := b.finished(id)
		last := e.Status.Messages[len(e.Status.Messages)-1]
		require.JSONEq(t, `"execution_interrupted"`, string(last[0]))
	})
}

// A prompt that is posted twice under one id is one job, even though the hub
// stamps each post with its time.
func TestStampIsNoPartOfTheHash(t *testing.T) {
	inBench(t, benchOf(0, serving(sim.Config{Version: ages[len(ages)-1]})), func(t *testing.T, b *bench) {
		for range 3 {
			b.postAs("same", "ann", picture(7))
		}
		require.Contains(t, string(b.finished("same").Prompt[3]), `"create_time": `)
		require.Equal(t, 1, started(b))
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
