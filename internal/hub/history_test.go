package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

		var entries map[string]struct {
			Prompt []json.RawMessage `json:"prompt"`
		}
		body := b.gets("/history")
		require.NoError(t, json.Unmarshal(body, &entries))
		numbers := map[string]string{}
		for id, e := range entries {
			require.Len(t, e.Prompt, 5)
			numbers[id] = string(e.Prompt[0])
		}
		require.Equal(t, map[string]string{short: "1", long: "2", next: "3"}, numbers)

		body = b.gets("/history/" + long)
		require.Contains(t, string(body), fmt.Sprintf(`"prompt": [2, %q, `, long))
		body = b.gets("/api/jobs/" + long)
		require.Contains(t, string(body), `"priority": 0`, "elsewhere it keeps its own")
	})
}

// TestInstanceForgetsItsHistory: an instance that was restarted knows nothing of
// its earlier runs. The hub answers from its own record of them, which stays.
func TestInstanceForgetsItsHistory(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		c := b.dial("me")
		id := b.submit(picture(7), "me")
		c.until(id)
		// At once: the hub has told the end, so it may need nothing more from the instance.
		b.instances[0].die()
		e := b.finished(id)
		paths := []string{
			"/history", "/history/" + id, "/api/jobs", "/api/jobs/" + id, "/queue",
			"/view?type=output&filename=" + e.Outputs["2"].Images[0].Filename,
		}
		told := func() (out []string) {
			for _, path := range paths {
				body := b.gets(path)
				out = append(out, string(body))
			}
			return out
		}
		before := told()
		b.instances[0].revive()
		next := b.submit(picture(8), "me") // runs when the instance is back
		c.until(next)
		require.NotContains(t, before[0], next)
		b.posts("/history", `{"delete": ["`+next+`"]}`)
		require.Equal(t, before, told())
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
	j := must(b.hub.queue.Find(context.Background(), "default", id))(b.t)
	return id, name, time.UnixMilli(j.FinishedAt)
}

func (b *bench) views(name string) bool {
	b.t.Helper()
	status, _ := b.get("/view?filename=" + name)
	require.Contains(b.t, []int{http.StatusOK, http.StatusNotFound}, status)
	return status == http.StatusOK
}

// A history entry goes away together with the files that no younger entry names. A
// file that a cached run has named again stays.
func TestHistoryGoesWithItsFiles(t *testing.T) {
	for name, configure := range map[string]func(*testing.T, *bench){
		"folder":       func(*testing.T, *bench) {},
		"object store": func(t *testing.T, b *bench) { b.id.Storage = bucket(t) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1, func(b *bench) { configure(t, b) })
			old, red, _ := b.made(picture(0xff0000))
			first, green, end := b.made(picture(0x00ff00))
			eventually(t, func() bool { return time.Since(end) > 2*time.Millisecond }, time.Minute, time.Millisecond)
			again, cached, _ := b.made(picture(0x00ff00))
			require.Equal(t, green, cached, "the cached run names the same file")

			ctx, later := t.Context(), end.Add(time.Hour)
			require.NoError(t, b.hub.janitor.forget(ctx, "", end, later))
			for _, id := range []string{old, first} {
				_, there := b.history(id)
				require.False(t, there)
			}
			require.False(t, b.views(red))
			_, there := b.history(again)
			require.True(t, there)
			require.True(t, b.views(green))

			// When an operator's client clears the history, no files are deleted, as in
			// ComfyUI. They expire later by themselves.
			b.posts("/history", `{"clear": true}`)
			require.True(t, b.views(green))
			b.settings.HistoryAge = time.Hour
			require.NoError(t, b.hub.Start(ctx, b.settings))
			require.NoError(t, b.hub.janitor.retainAt(ctx, end.Add(30*time.Minute)))
			require.True(t, b.views(green))
			require.NoError(t, b.hub.janitor.retainAt(ctx, end.Add(2*time.Hour)))
			require.False(t, b.views(green))
		})
	}
}

func TestHistoryIsBoundedBySize(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		var ids, names []string
		for n := range 4 {
			id, name, _ := b.made(picture(0x100000 + n))
			ids, names = append(ids, id), append(names, name)
		}
		_, body := b.get("/view?filename=" + names[0])
		b.settings.HistorySize = int64(len(body))*2 + 5
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		require.NoError(t, b.hub.janitor.retainAt(t.Context(), time.Now()))
		for _, name := range names {
			require.True(t, b.views(name), "all are young")
		}
		require.NoError(t, b.hub.janitor.retainAt(t.Context(), time.Now().Add(time.Hour)))
		kept := 0
		for n, name := range names {
			_, there := b.history(ids[n])
			require.Equal(t, there, b.views(name), "an entry and its files go together")
			if there {
				kept++
			} else {
				require.Zero(t, kept, "the oldest go")
			}
		}
		require.Positive(t, kept)
		require.LessOrEqual(t, kept, 2)
	})
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
		require.NoError(t, b.hub.janitor.retainAt(t.Context(), time.Now()))
		require.True(t, has("old.png"))
		require.NoError(t, b.hub.janitor.retainAt(t.Context(), time.Now().Add(2*time.Hour)))
		require.False(t, has("old.png"))
		require.True(t, has("needed.png"))
	})
}

// One hub does the cleaning. When it stops, another one takes over.
func TestOneHubKeepsHouse(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := redisInMemory(t)
		one := newBench(t, 0, func(b *bench) { b.id.Redis = server })
		two := newBench(t, 0, func(b *bench) {
			b.id.Redis, b.id.Storage = server, filepath.Join(one.id.Data, "files")
		})
		lead := func(b *bench) bool {
			ok := must(b.hub.store.Lead(t.Context(), "house", b.hub.self, time.Minute))(t)
			return ok
		}
		require.True(t, lead(one))
		require.False(t, lead(two))
		require.True(t, lead(one))
	})
}
