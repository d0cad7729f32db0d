package hub_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/view"
)

// fleetPage is a dashboard: it keeps what GET /hub/events has sent.
type fleetPage struct {
	t         *testing.T
	hello     map[string]any
	instances map[string]map[string]any
	jobs      map[string]map[string]any
	counts    map[string]any
	events    *bufio.Scanner
}

// watches opens a dashboard and waits for its snapshot.
func (v *visitor) watches(t *testing.T) *fleetPage {
	t.Helper()
	resp := v.do(http.MethodGet, "/hub/events", "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	t.Cleanup(func() { resp.Body.Close() })
	p := &fleetPage{t: t, events: bufio.NewScanner(resp.Body)}
	p.events.Buffer(nil, 10<<20)
	p.next("hello")
	p.next("snapshot")
	return p
}

// next takes in one event, which must be of the given kind unless that is empty.
func (p *fleetPage) next(kind string) {
	p.t.Helper()
	event := ""
	for p.events.Scan() {
		line := p.events.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = name
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		if kind != "" {
			require.Equal(p.t, kind, event)
		}
		p.take(event, data)
		return
	}
	p.t.Fatalf("the events have ended: %v", p.events.Err())
}

func (p *fleetPage) take(event, data string) {
	p.t.Helper()
	var change struct {
		Instances, Jobs []map[string]any
		GoneInstances   []string `json:"gone_instances"`
		GoneJobs        []string `json:"gone_jobs"`
		Counts          map[string]any
	}
	switch event {
	case "hello":
		require.NoError(p.t, json.Unmarshal([]byte(data), &p.hello))
		return
	case "snapshot":
		p.instances, p.jobs = map[string]map[string]any{}, map[string]map[string]any{}
	}
	require.NoError(p.t, json.Unmarshal([]byte(data), &change))
	merge := func(rows map[string]map[string]any, name string, changed []map[string]any) {
		for _, row := range changed {
			known := rows[row[name].(string)]
			if known == nil {
				known = map[string]any{}
				rows[row[name].(string)] = known
			}
			maps.Copy(known, row)
		}
	}
	for _, name := range change.GoneInstances {
		delete(p.instances, name)
	}
	for _, key := range change.GoneJobs {
		delete(p.jobs, key)
	}
	merge(p.instances, "name", change.Instances)
	merge(p.jobs, "key", change.Jobs)
	if change.Counts != nil {
		p.counts = change.Counts
	}
	for _, i := range p.instances {
		require.NotContains(p.t, p.jobs, i["key"], "it waits and runs")
	}
}

// until takes in events until something holds.
func (p *fleetPage) until(holds func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		require.True(p.t, time.Now().Before(deadline))
		p.next("")
	}
}

// ids are the prompt ids of the waiting jobs.
func (p *fleetPage) ids() (ids []string) {
	for _, j := range p.jobs {
		ids = append(ids, j["id"].(string))
	}
	return ids
}

func (p *fleetPage) runs(id string) bool {
	for _, i := range p.instances {
		if i["job"] == id {
			return true
		}
	}
	return false
}

// Whoever has followed all changes knows what a snapshot shows to a latecomer.
func TestChangesAddUpToASnapshot(t *testing.T) {
	inBench(t, benchOf(2), func(t *testing.T, b *bench) {
		v := b.script()
		early := v.watches(t)
		require.Len(t, early.instances, 2)
		first := v.submit(endless(1), "ann")
		second := v.submit(endless(2), "ann")
		early.until(func() bool { return early.runs(first) && early.runs(second) && len(early.jobs) == 0 })
		waiting := []string{v.submit(endless(3), "ann"), v.submit(endless(4), "ann")}
		early.until(func() bool { return len(early.jobs) == 2 })
		require.ElementsMatch(t, waiting, early.ids())
		_, _ = v.send("PATCH", "/hub/jobs/"+waiting[1], `{"position": "front", "paused": true}`)
		paused := func() bool {
			for _, j := range early.jobs {
				if j["paused"] == true && j["id"] == waiting[1] {
					return true
				}
			}
			return false
		}
		early.until(paused)
		v.posts("/hub/jobs/"+waiting[0]+"/cancel", "")
		early.until(func() bool { return len(early.jobs) == 1 && early.counts["waiting"] == 1.0 })
		early.until(func() bool {
			late := v.watches(t)
			for _, rows := range []map[string]map[string]any{late.instances, early.instances, late.jobs, early.jobs} {
				for _, row := range rows {
					// Values that move by themselves may have moved in between, and a new row
					// leaves out what is unknown.
					maps.DeleteFunc(row, func(name string, value any) bool {
						return slices.Contains([]string{"progress", "vram_free", "node", "class", "began", "models", "eta"}, name) ||
							value == "" || value == 0.0 || value == false
					})
				}
			}
			same := func(a, b any) bool {
				x := must(json.Marshal(a))(t)
				y := must(json.Marshal(b))(t)
				return string(x) == string(y)
			}
			return same(late.instances, early.instances) && same(late.jobs, early.jobs) && same(late.counts, early.counts)
		})
		v.posts("/queue", `{"clear": true}`)
		v.posts("/hub/jobs/"+first+"/cancel", "")
		v.posts("/hub/jobs/"+second+"/cancel", "")
	})
}

// A job that runs says when it will be finished, once it is known how long such jobs take.
func TestRunningJobsHaveAnETA(t *testing.T) {
	inBench(t, benchOf(0, serving(sim.Config{TimeScale: 1})), func(t *testing.T, b *bench) {
		v := b.script()
		p := v.watches(t)
		eta := func(id string) (left time.Duration, found bool) {
			for _, i := range p.instances {
				if at, _ := i["eta"].(float64); i["job"] == id && at > 0 {
					return time.Until(time.UnixMilli(int64(at))), true
				}
			}
			return 0, false
		}
		first := v.submit(work(20, 1, "none"), "ann")
		p.until(func() bool { return p.runs(first) })
		_, known := eta(first)
		require.False(t, known, "nobody knows")
		p.until(func() bool { return !p.runs(first) })
		<-time.After(10 * time.Second)
		second := v.submit(work(20, 2, "none"), "ann")
		var left time.Duration
		p.until(func() bool { left, known = eta(second); return known })
		require.InDelta(t, 20, left.Seconds(), 5)
		p.until(func() bool { return !p.runs(second) })
		_, known = eta(second)
		require.False(t, known)
	})
}

// Users see their own jobs and counts of others'; operators see all.
func TestDashboardOfATenant(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.Operators = []string{"root"} }), func(t *testing.T, b *bench) {
		ada, eve, root := b.login("ada"), b.login("eve"), b.login("root")
		running := ada.submit(endless(1), "ada")
		ada.awaits(running, "running")
		waiting := ada.submit(endless(2), "ada")
		hers, all := ada.watches(t), root.watches(t)
		for _, p := range []*fleetPage{hers, all} {
			p.until(func() bool { return p.runs(running) && len(p.jobs) == 1 })
			require.Equal(t, []string{waiting}, p.ids())
		}
		others := eve.watches(t)
		others.until(func() bool { return others.counts["waiting"] == 1.0 && others.counts["running"] == 1.0 })
		require.Zero(t, others.counts["own_waiting"])
		require.Empty(t, others.jobs)
		require.Equal(t, false, others.hello["operator"])
		require.Equal(t, true, all.hello["operator"])
		at := b.instances[0].url()
		shown := must(json.Marshal(others.instances))(t)
		for _, secret := range []string{running, "ada", `"url":"` + at} {
			require.NotContains(t, string(shown), secret)
		}
		for _, i := range others.instances {
			require.Empty(t, i["url"])
			require.Empty(t, i["job"])
			require.Empty(t, i["class"])
		}
		for name, i := range all.instances {
			require.Equal(t, at, i["url"])
			require.Equal(t, "ada", i["tenant"])
			for _, v := range []*visitor{ada, root} {
				eventually(t, func() bool {
					status, _ := v.send("GET", "/hub/preview?instance="+url.QueryEscape(name), "")
					return status == http.StatusOK
				}, time.Minute, 20*time.Millisecond)
			}
			require.Equal(t, http.StatusNotFound, statusOf(eve.send("GET", "/hub/preview?instance="+url.QueryEscape(name), "")))
		}

		// Only operators may use operators' commands, and only they may name a tenant in the query.
		for _, path := range []string{"/hub/pause", "/hub/resume", "/hub/drain?instance=x", "/hub/forget?instance=x", "/hub/restart?instance=x"} {
			for _, v := range []*visitor{ada, eve, b.script()} {
				require.Equal(t, http.StatusForbidden, statusOf(v.send("POST", path, "")), path)
			}
		}
		_, body := eve.send("POST", "/hub/jobs/"+waiting+"/cancel?tenant=ada", "")
		require.JSONEq(t, `{"cancelled": false}`, string(body))
		require.Equal(t, http.StatusBadRequest, statusOf(root.send("POST", "/hub/pause?tenant=", "")), "a mistake does not mean everything")
		root.posts("/hub/pause", "")
		others.until(func() bool { return others.counts["paused"] == true })
		root.posts("/hub/resume", "")
		_, body = root.send("POST", "/hub/jobs/"+waiting+"/cancel?tenant=ada", "")
		require.JSONEq(t, `{"cancelled": true}`, string(body))
		hers.until(func() bool { return len(hers.jobs) == 0 })
		require.Equal(t, http.StatusNotFound, statusOf(root.send("POST", "/hub/restart?instance=none", "")))
		for name := range all.instances {
			require.Equal(t, http.StatusConflict, statusOf(root.send("POST", "/hub/restart?instance="+url.QueryEscape(name), "")), "it has no agent")
			root.posts("/hub/drain?instance="+url.QueryEscape(name), "")
			hers.until(func() bool { return hers.instances[name]["drained"] == true })
		}
		ada.posts("/interrupt", "")
		ada.awaits(running, "cancelled")
	})
}

// Faults are shown to those whose jobs they concern, and to operators.
func TestFaultsOfATenant(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.Operators = []string{"root"} }), func(t *testing.T, b *bench) {
		ada, eve, root := b.login("ada"), b.login("eve"), b.login("root")
		ada.submit(work(1, 7, "error"), "ada")
		require.Equal(t, http.StatusBadRequest, statusOf(ada.send("POST", "/prompt", `{"prompt": {"1": {"class_type": "NoSuchClass", "inputs": {}}}}`)))
		kinds := func(v *visitor) map[string]string {
			b.hub.Recorder.Flush()
			_, body := v.send("GET", "/hub/faults", "")
			list := decoded[[]struct{ Kind, Reason string }](t, body)
			found := map[string]string{}
			for _, f := range list {
				found[f.Kind] = f.Reason
			}
			return found
		}
		eventually(t, func() bool { return len(kinds(ada)) == 2 }, time.Minute, 20*time.Millisecond)
		require.Contains(t, kinds(ada)["refused"], "NoSuchClass")
		require.NotEmpty(t, kinds(ada)["failed"])
		require.Empty(t, kinds(eve))
		require.Len(t, kinds(root), 2)
		_, body := eve.send("GET", "/hub/trends", "")
		require.Contains(t, string(body), `"failed": 1`)
	})
}

// Dashboards are limited per person and in total; a reader that does not read is cut off, and
// nothing is looked at when nobody is watching.
func TestDashboardsAreBounded(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		v := b.script()
		var pages []*http.Response
		for range view.MaxPagesOfOne {
			resp := v.do(http.MethodGet, "/hub/events", "")
			require.Equal(t, http.StatusOK, resp.StatusCode)
			pages = append(pages, resp)
		}
		require.Equal(t, http.StatusTooManyRequests, statusOf(v.send("GET", "/hub/events", "")))
		for _, resp := range pages {
			resp.Body.Close()
		}
		eventually(t, func() bool { return !b.hub.Board.Looks() }, time.Minute, 5*time.Millisecond)

		slow := must(b.hub.Board.Watch(t.Context(), view.Viewer{Tenant: "default"}, "slow"))(t)
		for n := range 2 * cap(slow.Changes) {
			b.hub.Fleet.SetDraining(b.hub.Fleet.Instances()[0].Name, n%2 == 0)
			time.Sleep(time.Second)
		}
		read := 0
		for range slow.Changes { // it is cut off
			read++
		}
		require.Equal(t, cap(slow.Changes), read)
		slow.Stop()
		require.False(t, b.hub.Board.Looks())
	})
}

// A hub that closes ends the streams of its dashboards.
func TestDashboardsEndWithTheHub(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		resp := b.script().do(http.MethodGet, "/hub/events", "")
		require.NoError(t, b.hub.Close(context.Background()))
		must(io.ReadAll(resp.Body))(t)
		resp.Body.Close()
	})
}
