package hub_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api/ops"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// positioned is what every answer that shows a position has of it.
type positioned struct {
	ID       string
	Position *int
	Ahead    *struct {
		Own    int `json:"own_count"`
		Others int `json:"others_count"`
	}
}

// of returns the position of a job among those of an answer; -1 if it is null.
func of(t *testing.T, jobs []positioned, id string) int {
	t.Helper()
	at := slices.IndexFunc(jobs, func(p positioned) bool { return p.ID == id })
	require.GreaterOrEqual(t, at, 0, "%s is not among %v", id, jobs)
	if jobs[at].Position == nil {
		return -1
	}
	return *jobs[at].Position
}

// positionsOf asks every place that shows where a job waits. posted is what was posted as id.
func positionsOf(t *testing.T, b *bench, v, root *visitor, id, posted string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, path := range []string{"/hub/jobs", "/hub/jobs?status=queued", "/hub/jobs?limit=1000"} {
		found["GET "+path] = of(t, decoded[[]positioned](t, v.sends("GET", path, "")), id)
	}
	queued := decoded[[]positioned](t, v.sends("GET", "/hub/jobs?status=queued", ""))
	offset := slices.IndexFunc(queued, func(p positioned) bool { return p.ID == id })
	for _, path := range []string{fmt.Sprintf("/hub/jobs?status=queued&limit=1&offset=%d", offset), "/hub/search?text=" + id} {
		var page []positioned
		if body := v.sends("GET", path, ""); body[0] == '[' {
			page = decoded[[]positioned](t, body)
		} else {
			page = decoded[struct{ Jobs []positioned }](t, body).Jobs
		}
		found["GET "+path] = of(t, page, id)
	}
	for _, path := range []string{"/hub/jobs/" + id, "/hub/jobs/" + id + "/whole", "/status/" + id} {
		found["GET "+path] = of(t, []positioned{decoded[positioned](t, v.sends("GET", path, ""))}, id)
	}
	counted := decoded[struct {
		Position int `json:"queue_position"`
	}](t, v.sends("GET", "/api/v2/jobs/"+id, ""))
	found["GET /api/v2/jobs/{id}"] = counted.Position - 1 // it counts from 1
	e := decoded[positioned](t, v.sends("POST", "/hub/explain", fmt.Sprintf(`{"prompt_id": %q}`, id)))
	found["POST /hub/explain"] = *e.Position
	require.NotNil(t, e.Ahead)
	found["what explain has ahead of it"] = e.Ahead.Own + e.Ahead.Others
	steered := decoded[positioned](t, v.sends("PATCH", "/hub/jobs/"+id, `{"paused": false}`))
	found["PATCH /hub/jobs/{id}"] = *steered.Position

	resp := v.do(http.MethodPost, "/prompt", posted)
	_, body := read(t, resp)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
	found["X-ComfyHub-Position"] = must(strconv.Atoi(resp.Header.Get("X-ComfyHub-Position")))(t)

	for name, watcher := range map[string]*visitor{"the owner's page": v, "the operator's page": root} {
		p := watcher.watches(t)
		for _, row := range p.jobs {
			if row["id"] == id {
				position, _ := row["position"].(float64) // a new row leaves out a zero
				found[name] = int(position)
			}
		}
	}
	answer := must(ops.JobsJSON(t.Context(), b.hub.Operator, url.Values{"id": {id}}))(t)
	found["comfyhub status ID"] = of(t, decoded[[]positioned](t, answer), id)
	answer = must(ops.JobsJSON(t.Context(), b.hub.Operator, url.Values{"status": {"queued"}}))(t)
	found["comfyhub status"] = of(t, decoded[[]positioned](t, answer), id)
	return found
}

// Wherever a position is shown, it counts the same jobs: those of everybody that will be given out
// before, in the order in which that will be.
func TestPositionIsTheSameEverywhere(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.Operators = []string{"root"} }), func(t *testing.T, b *bench) {
		root := b.login("root")
		running := root.submit(endless(1), "root")
		root.awaits(running, "running")

		type waiting struct {
			of         *visitor
			id, posted string
		}
		var all []waiting
		post := func(user, more string) {
			v, id := b.login(user), fmt.Sprintf("00000000-0000-4000-8000-%012d", len(all))
			posted := fmt.Sprintf(`{"prompt_id": %q, "client_id": %q, "prompt": %s%s}`, id, user, endless(2+len(all)), more)
			resp := v.do(http.MethodPost, "/prompt", posted)
			_, body := read(t, resp)
			require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
			all = append(all, waiting{v, id, posted})
		}
		for range 4 {
			post("ada", "")
		}
		post("bob", "")
		post("bob", "")
		post("ada", `, "front": true`)
		post("eve", `, "extra_data": {"comfyhub": {"band": "bulk"}}`)

		w := must(b.hub.Queue.Window(t.Context(), queue.Wanted{}, 0, 100))(t)
		require.Len(t, w.Jobs, len(all))
		eventually(t, func() bool { // the hub has read the line
			e := decoded[positioned](t, all[len(all)-1].of.sends("POST", "/hub/explain", fmt.Sprintf(`{"prompt_id": %q}`, all[len(all)-1].id)))
			return e.Ahead != nil
		}, time.Minute, 100*time.Millisecond)
		for n, j := range w.Jobs {
			at := slices.IndexFunc(all, func(o waiting) bool { return o.id == j.ID })
			for where, position := range positionsOf(t, b, all[at].of, root, j.ID, all[at].posted) {
				require.Equal(t, n, position, "%s of %s", where, j.ID)
			}
		}
		require.NotEqual(t, "ada", w.Jobs[1].Tenant, "the others take turns, or every answer might count a tenant's own jobs only")

		root.posts("/hub/jobs/"+running+"/cancel", "")
		for _, j := range all {
			j.of.posts("/hub/jobs/"+j.id+"/cancel", "")
		}
	})
}
