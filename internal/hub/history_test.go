package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/job"
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
	j := must(b.hub.Queue().Find(context.Background(), "default", id))(b.t)
	return id, name, time.UnixMilli(j.FinishedAt)
}

func (b *bench) views(name string) bool {
	b.t.Helper()
	status, _ := b.get("/view?filename=" + name)
	require.Contains(b.t, []int{http.StatusOK, http.StatusNotFound}, status)
	return status == http.StatusOK
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
		require.NoError(t, b.retainAt(time.Now()))
		for _, name := range names {
			require.True(t, b.views(name), "all are young")
		}
		require.NoError(t, b.retainAt(time.Now().Add(time.Hour)))
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
		one.hub.Janitor().Full = func() bool { return false } // whatever the disk of this machine is
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

		all, n, err := two.hub.Operator().Trash(t.Context(), "default", 10)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		for _, trashed := range all {
			_, err := two.hub.Operator().TakeBack(t.Context(), "default", trashed.ID)
			require.NoError(t, err)
			_, err = one.hub.Operator().TakeBack(t.Context(), "default", trashed.ID)
			require.ErrorIs(t, err, hub.ErrNotInTrash)
		}
		require.True(t, one.views(name))
		one.posts("/history", `{"clear": true}`)
		require.True(t, one.views(name), "as in ComfyUI, its files stay until they are too old or too many")
		_, body := one.get("/view?type=input&filename=fox.png")
		require.Equal(t, "red", string(body))

		// A storage that is full has no room for a trash.
		one.overwrites(t, "blue")
		one.hub.Janitor().Full = func() bool { return true }
		require.NoError(t, one.retainAt(time.Now()))
		_, n, err = two.hub.Operator().Trash(t.Context(), "", 10)
		require.NoError(t, err)
		require.Zero(t, n)
		one.hub.Janitor().Full = func() bool { return false }

		// What takes too much room is gone.
		one.settings.HistoryAge, one.settings.HistorySize = 0, 1
		require.NoError(t, one.hub.Start(t.Context(), one.settings))
		require.NoError(t, one.retainAt(time.Now().Add(2*time.Hour)))
		require.False(t, two.views(name))
		_, n, err = two.hub.Operator().Trash(t.Context(), "", 10)
		require.NoError(t, err)
		require.Zero(t, n)
		_, _, err = hub.New(one.id).Operator().Trash(t.Context(), "", 1)
		require.ErrorIs(t, err, config.ErrNotStarted)
		_, err = hub.New(one.id).Operator().TakeBack(t.Context(), "default", "x")
		require.ErrorIs(t, err, config.ErrNotStarted)
	})
}

// overwrites uploads a file in place of the one of its name.
func (b *bench) overwrites(t *testing.T, data string) {
	t.Helper()
	_, err := b.hub.Store().Upload(t.Context(), "default", job.FileRef{Type: job.TypeInput, Filename: "fox.png"}, true, strings.NewReader(data))
	require.NoError(t, err)
}
