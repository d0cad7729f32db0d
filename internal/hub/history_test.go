package hub_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// ComfyUI's web UI before the jobs API only adds entries whose number is higher than all those in
// its list. So a job that a younger one has overtaken must get a higher number too.
func TestOvertakenJobHasAHigherNumberInTheHistory(t *testing.T) {
	inBench(t, benchOf(2), func(t *testing.T, b *bench) {
		long := b.begins(endless(1), "ann")
		short := b.submit(work(1, 2, "none"), "ann")
		require.Equal(t, "success", b.finished(short).Status.Text)
		b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, long))
		require.Equal(t, "error", b.finished(long).Status.Text)
		next := b.submit(work(1, 3, "none"), "ann")
		require.Equal(t, "success", b.finished(next).Status.Text)

		numbers := map[string]string{}
		for id, e := range decoded[map[string]entry](t, b.gets("/history")) {
			require.Len(t, e.Prompt, 5)
			numbers[id] = string(e.Prompt[0])
		}
		require.Equal(t, map[string]string{short: "1", long: "2", next: "3"}, numbers)
		require.Contains(t, b.text("/history/"+long), fmt.Sprintf(`"prompt": [2, %q, `, long))
		require.Contains(t, b.text("/api/jobs/"+long), `"priority": 0`, "elsewhere it keeps its own")
	})
}

// TestRunWithoutTheInstancesRecord: an instance restarts and loses its record of a
// run between the last message and the hub's look at the record. Its messages held
// everything that was in the record, so the run is not lost.
func TestRunWithoutTheInstancesRecord(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		forgets := newInstance(t, sim.Config{})
		front := simtest.Front(t, forgets.url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
			if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/history/") {
				_, _ = w.Write([]byte("{}"))
				return
			}
			rest.ServeHTTP(w, r)
		})
		without := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{front.URL} })
		with := newBench(t, 1)

		volatile := regexp.MustCompile(`("(?:timestamp|create_time|execution_start_time|execution_end_time)": |"executed": )[^,}\]]+|"traceback": \[[^\]]*\]`)
		for n, graph := range []string{picture(1), picture(1), work(0.01, 2, "error"), picture(3)} {
			id := fmt.Sprintf("prompt-%d", n)
			// Each is another client: one that comes back at once may be shown its last run again.
			me := fmt.Sprint("me", n)
			told := func(b *bench) (messages []string, entry string) {
				c := b.dial(me)
				// The hub has the socket now. What begins before that is shown shortened.
				require.Equal(t, "status", c.any().Type)
				b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": %q, "prompt_id": %q}`, graph, me, id))
				messages = c.until(id)
				require.NoError(t, c.conn.CloseNow())
				b.finished(id)
				return messages, volatile.ReplaceAllString(b.text("/history/"+id), "$1")
			}
			wantMessages, wantEntry := told(with)
			messages, entry := told(without)
			require.Equal(t, wantMessages, messages, "%d", n)
			require.Equal(t, wantEntry, entry, "%d", n)
		}
	})
}

// made runs a graph and returns the name of its picture and the time when the job ended.
func (b *bench) made(graph string) (id, name string, end time.Time) {
	b.t.Helper()
	id = b.submit(graph, "ann")
	name = b.finished(id).Outputs["2"].Images[0].Filename
	j := must(b.hub.Queue.Find(context.Background(), "default", id))(b.t)
	return id, name, time.UnixMilli(j.FinishedAt)
}

func (b *bench) views(name string) bool {
	b.t.Helper()
	status, _ := b.get("/view?filename=" + name)
	require.Contains(b.t, []int{http.StatusOK, http.StatusNotFound}, status)
	return status == http.StatusOK
}

// An upload that a job still needs stays, however old it is.
func TestInputsGrowOld(t *testing.T) {
	inBench(t, benchOf(0, func(b *bench) { b.settings.InputAge = time.Hour }), func(t *testing.T, b *bench) {
		for _, name := range []string{"needed.png", "old.png"} {
			require.Equal(t, http.StatusOK, statusOf(b.upload(name, "", name)))
		}
		b.submit(`{"1": {"class_type": "LoadImage", "inputs": {"image": "needed.png"}},
			"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}`, "ann")
		has := func(name string) bool {
			status, _ := b.get("/view?type=input&filename=" + name)
			return status == http.StatusOK
		}
		require.NoError(t, b.retainAt(time.Now()))
		require.True(t, has("old.png"))
		require.NoError(t, b.retainAt(time.Now().Add(2*time.Hour)))
		require.False(t, has("old.png"))
		require.True(t, has("needed.png"))
	})
}

// What is overwritten at one hub, and what goes because of its age, is in the trash of both.
func TestTrashOfTwoHubs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one, two := newPair(t, 1, 0)
		one.hub.Janitor.Full = func() bool { return false } // whatever the disk of this machine is
		for _, data := range []string{"red", "green"} {
			one.overwrites(t, data)
		}
		id, name, _ := one.made(picture(0xff))
		one.settings.HistoryAge = time.Hour
		require.NoError(t, one.hub.Start(t.Context(), one.settings))
		require.NoError(t, one.retainAt(time.Now().Add(2*time.Hour)))
		_, there := two.history(id)
		require.False(t, there)
		require.False(t, two.views(name))

		all, n, err := two.hub.Janitor.Trash.List(t.Context(), "default", 10)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		for _, trashed := range all {
			_, err := two.hub.Janitor.Trash.TakeBack(t.Context(), "default", trashed.ID)
			require.NoError(t, err)
			_, err = one.hub.Janitor.Trash.TakeBack(t.Context(), "default", trashed.ID)
			require.ErrorIs(t, err, files.ErrNotInTrash)
		}
		require.True(t, one.views(name))
		one.posts("/history", `{"clear": true}`)
		require.True(t, one.views(name), "as in ComfyUI, its files stay until they are too old or too many")
		_, body := one.get("/view?type=input&filename=fox.png")
		require.Equal(t, "red", string(body))

		// A storage that is full has no room for a trash.
		one.overwrites(t, "blue")
		one.hub.Janitor.Full = func() bool { return true }
		require.NoError(t, one.retainAt(time.Now()))
		_, n, err = two.hub.Janitor.Trash.List(t.Context(), "", 10)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

// overwrites uploads a file in place of the one of its name.
func (b *bench) overwrites(t *testing.T, data string) {
	t.Helper()
	_, err := b.hub.Store.Upload(t.Context(), "default", job.FileRef{Type: job.TypeInput, Filename: "fox.png"}, true, strings.NewReader(data))
	require.NoError(t, err)
}

// cached is a hub with one instance and a result cache.
func cached() plan {
	return benchOf(1, func(b *bench) { b.settings.TenantLimits.ResultCache = 10 * time.Minute })
}

// kept waits until the result of a job can be given again.
func (b *bench) kept(id string) {
	b.t.Helper()
	j := must(b.hub.Queue.Find(context.Background(), job.DefaultTenant, id))(b.t)
	eventually(b.t, func() bool {
		body := b.hub.DB.Client().HGet(context.Background(), b.hub.DB.Key("q", "job", j.Key), "stamp")
		return body.Err() == nil
	}, time.Minute, 10*time.Millisecond)
}

func TestEqualPromptHasTheResultAtOnce(t *testing.T) {
	inBench(t, cached(), func(t *testing.T, b *bench) {
		first := b.submit(picture(7), "ann")
		made := b.finished(first)
		b.kept(first)
		c := b.dial("bob")
		id := b.submit(picture(7), "bob")
		require.Equal(t, []string{"execution_start", "execution_cached", "executed", "execution_success", "executing"}, c.until(id))
		again := b.finished(id)
		require.Equal(t, made.Outputs, again.Outputs)
		require.Equal(t, "success", again.Status.Text)
		require.Contains(t, string(again.Status.Messages[1][1]), `"nodes": ["1", "2"]`)
		require.Equal(t, 1, b.instances[0].Started(), "nothing has run")
		require.Contains(t, b.text("/hub/jobs/"+id), whyRepeated)
		require.InDelta(t, 1, b.metric("comfyhub_jobs_repeated_total"), 0)

		b.posts("/history", fmt.Sprintf(`{"delete": [%q]}`, first))
		require.True(t, b.views(made.Outputs["2"].Images[0].Filename), "the second job still has it")
		// A result that somebody has deleted is not given again; that of the second job was never kept.
		third := b.submit(picture(7), "ann")
		b.finished(third)
		require.Equal(t, 2, b.instances[0].Started())
	})
}

const whyRepeated = "it has the result of an equal prompt"

// Whatever may matter and differs, or cannot be known, makes a prompt run.
func TestOtherPromptsRun(t *testing.T) {
	inBench(t, cached(), func(t *testing.T, b *bench) {
		for n, graph := range []string{picture(1), picture(2), work(0.01, 3, "none"), work(0.01, 3, "none")} {
			id := b.submit(graph, "ann")
			b.finished(id)
			if n < 2 {
				b.kept(id)
			}
		}
		require.Equal(t, 4, b.instances[0].Started())
		time.Sleep(11 * time.Minute) // longer than a result may be given
		b.finished(b.submit(picture(1), "ann"))
		require.Equal(t, 5, b.instances[0].Started())
	})
}

// One tenant neither gets nor sees another's results.
func TestResultsAreTheirTenants(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{ResultCache: time.Hour}, func(b *bench) { b.instances = append(b.instances, newInstance(t, sim.Config{})) })
		for _, tenant := range []string{"ann", "bob", "ann"} {
			id := idOf(t, []byte(b.acts(tenant, http.MethodPost, "/prompt", `{"prompt": `+picture(1)+`}`)))
			eventually(t, func() bool { return b.acts(tenant, http.MethodGet, "/history/"+id, "") != "{}" }, time.Minute, 10*time.Millisecond)
			time.Sleep(time.Second)
		}
		require.Equal(t, 2, b.instances[0].Started())
	})
}

// A hub that dies before it has given a result leaves a job that runs.
func TestHubDiesBeforeItGivesAResult(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		b.begins(endless(9), "bob")
		id := b.submit(picture(1), "ann")
		ctx := context.Background()
		j := must(b.hub.Queue.Find(ctx, job.DefaultTenant, id))(t)
		must(b.hub.Queue.Claim(ctx, queue.ClaimRequest{Key: j.Key, Tenant: j.Tenant, Hub: "gone/1", Upstream: "x", Why: whyRepeated}))(t)
		b.posts("/interrupt", "")
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.Equal(t, 1, must(b.hub.Queue.Find(ctx, job.DefaultTenant, id))(t).Attempts, "that was no attempt")
	})
}
