package hub_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api/ops"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// login returns a visitor that is logged in.
func (b *bench) login(user string) *visitor {
	v := b.script()
	v.user = user
	return v
}

type shownInstance struct {
	Name, URL, State, Reason string
	Running                  *string
}

func (v *visitor) instances() (list []shownInstance) {
	v.b.t.Helper()
	_, body := v.send("GET", "/hub/instances", "")
	require.NoError(v.b.t, json.Unmarshal(body, &list), string(body))
	return list
}

type shownStats struct{ Queued, Running, Sockets int }

func (v *visitor) stats() (s shownStats) {
	v.b.t.Helper()
	_, body := v.send("GET", "/hub/stats", "")
	require.NoError(v.b.t, json.Unmarshal(body, &s), string(body))
	return s
}

// Other users' prompts make an instance busy. Nothing else about them is shown,
// nor where the instance is.
func TestInsightOfATenant(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		ada, eve, stranger := b.login("ada"), b.login("eve"), b.script()
		at := b.instances[0].url()
		require.Equal(t, at, stranger.instances()[0].URL, "where nobody logs in")

		running := ada.submit(endless(1), "ada")
		ada.awaits(running, "running")
		waiting := ada.submit(endless(2), "ada")
		eventually(t, func() bool { return ada.instances()[0].Running != nil }, time.Minute, 5*time.Millisecond)
		require.Equal(t, running, *ada.instances()[0].Running)
		for _, v := range []*visitor{eve, stranger} {
			seen := v.instances()[0]
			require.Equal(t, "busy", seen.State)
			require.Nil(t, seen.Running, "ada's prompt")
		}
		for _, v := range []*visitor{ada, eve, stranger} {
			seen := v.instances()[0]
			require.Empty(t, seen.URL)
			require.Empty(t, seen.Reason)
		}
		require.Contains(t, string(ops.InstancesJSON(b.hub.Operator.Instances())), at, "the operator sees it")
		require.Contains(t, string(ops.InstancesJSON(b.hub.Operator.Instances())), running)

		ada.connect("ada")
		require.Equal(t, shownStats{Queued: 1, Running: 1, Sockets: 1}, ada.stats())
		require.Zero(t, eve.stats())
		require.Zero(t, stranger.stats())
		b.trusted = true
		require.Equal(t, shownStats{Queued: 1, Running: 1, Sockets: 1}, stranger.stats(), "who may speak for all may count all")
		require.Equal(t, at, stranger.instances()[0].URL)
		b.trusted = false

		for _, v := range []*visitor{eve, stranger} {
			require.Empty(t, v.states())
			for _, id := range []string{running, waiting} {
				require.Equal(t, http.StatusNotFound, statusOf(v.send("GET", "/hub/jobs/"+id, "")))
				require.Equal(t, http.StatusNotFound, statusOf(v.send("POST", "/hub/explain", `{"prompt_id": "`+id+`"}`)))
				_, body := v.send("POST", "/hub/jobs/"+id+"/cancel", "")
				require.JSONEq(t, `{"cancelled": false}`, string(body))
				_, body = v.send("GET", "/history/"+id, "")
				require.JSONEq(t, "{}", string(body))
			}
			for _, path := range []string{"/queue", "/history", "/api/jobs", "/hub/jobs"} {
				_, body := v.send("GET", path, "")
				require.NotContains(t, string(body), running, path)
				require.NotContains(t, string(body), waiting, path)
			}
		}
		ada.posts("/queue", `{"clear": true}`)
		ada.posts("/interrupt", "")
		ada.awaits(running, "cancelled")
	})
}

// A lost run gives the reason by its instance's name, not by its address.
func TestReasonsTellNoAddress(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.MaxAttempts = 1 }), func(t *testing.T, b *bench) {
		ada := b.login("ada")
		running := ada.submit(endless(1), "ada")
		// The hub also says running of a job that is still on its way to an instance. That is not a run
		// yet.
		eventually(t, func() bool {
			jobs, err := b.hub.Jobs.Live(t.Context(), "ada")
			return err == nil && len(jobs) == 1 && jobs[0].State == job.Running
		}, time.Minute, 5*time.Millisecond)
		b.instances[0].die()
		ada.awaits(running, "failed")
		at := strings.TrimPrefix(b.instances[0].url(), "http://")
		_, body := ada.send("GET", "/hub/jobs/"+running, "")
		require.NotContains(t, string(body), b.instances[0].url())
		_, body = ada.send("GET", "/history/"+running, "")
		require.NotContains(t, string(body), "http://"+at)
		require.NotContains(t, string(body), "dial tcp")
		waiting := ada.submit(endless(2), "ada")
		_, body = ada.send("POST", "/hub/explain", `{"prompt_id": "`+waiting+`"}`)
		require.NotContains(t, string(body), "http://")
	})
}

// A node leaves a picture in its instance's memory under an id that others could
// guess. Only the tenant whose job has named it gets it.
func TestPicturesLeftByNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newPack(t, "one", sim.Config{Annotate: func(file *pyjson.Object) {
			file.Set("source", pyjson.String("http"))
			file.Set("id", pyjson.String("left"))
		}})
		b := packed(t, p)
		stranger, ada, eve := b.script(), b.login("ada"), b.login("eve")
		const path = files.HeldPath + "left"
		stranger.sends("GET", path, "") // where nobody logs in
		require.Equal(t, http.StatusNotFound, statusOf(ada.send("GET", path, "")), "no job of ada's has named it")

		ada.awaits(ada.submit(picture(7), "ada"), "done")
		body := ada.sends("GET", path, "")
		require.Equal(t, "one", string(body))
		for _, v := range []*visitor{eve, stranger} {
			require.Equal(t, http.StatusNotFound, statusOf(v.send("GET", path, "")))
		}
		require.Equal(t, http.StatusNotFound, statusOf(ada.send("GET", files.HeldPath+"other", "")))

		// A picture that a client has put there itself also belongs to its tenant.
		require.Equal(t, http.StatusCreated, statusOf(eve.send("PUT", files.HeldPath+"mine", "eve's")))
		body = eve.sends("GET", files.HeldPath+"mine", "")
		require.Equal(t, "eve's", string(body))
		require.Equal(t, http.StatusNotFound, statusOf(ada.send("GET", files.HeldPath+"mine", "")))
	})
}

// Nobody is an operator who is not named: a login, or with "default" those who have none.
func TestOperators(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		at := b.instances[0].url()
		root, ada, namesake, stranger := b.login("root"), b.login("ada"), b.login("default"), b.script()
		for _, c := range []struct {
			operators []string
			sees      []*visitor
			doNotSee  []*visitor
		}{
			{nil, nil, []*visitor{root, ada, namesake, stranger}},
			{[]string{"root"}, []*visitor{root}, []*visitor{ada, namesake, stranger}},
			{[]string{"default"}, []*visitor{stranger}, []*visitor{root, ada, namesake}},
			{[]string{"login:default"}, []*visitor{namesake}, []*visitor{root, ada, stranger}},
		} {
			b.settings.Operators = c.operators
			require.NoError(t, b.hub.Start(t.Context(), b.settings))
			root.stats() // somebody logs in
			for _, v := range c.sees {
				require.Equal(t, at, v.instances()[0].URL, c.operators)
			}
			for _, v := range c.doNotSee {
				require.Empty(t, v.instances()[0].URL, c.operators)
			}
		}
	})
}

// A checkup names what differs between servers, and which server is gone.
func TestCheckup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		models := func(names ...string) map[string][]string { return map[string][]string{"checkpoints": names} }
		b := newBench(t, 0, func(b *bench) {
			b.instances = []*instance{
				newInstance(t, sim.Config{Models: models("a.safetensors", "b.safetensors")}),
				newInstance(t, sim.Config{Models: models("a.safetensors"), OmitClasses: []string{"ImageScale"}}),
				newInstance(t, sim.Config{Models: models("a.safetensors"), Version: "0.33.0"}),
			}
		})
		find := func(about, says string) *config.Finding {
			all := b.hub.Checkup.Findings(t.Context())
			i := slices.IndexFunc(all, func(f config.Finding) bool { return f.About == about && strings.Contains(f.Says, says) })
			if i < 0 {
				return nil
			}
			return &all[i]
		}
		eventually(t, func() bool {
			return find("models", "b.safetensors is on 1 of 3 instances") != nil && find("versions", "0.33.0 on") != nil && find("nodes", "ImageScale") != nil
		}, time.Minute, 20*time.Millisecond, "what differs is found")
		require.Equal(t, config.LevelOK, find("storage", "").Level)
		require.Equal(t, config.LevelOK, find("redis", "").Level)

		b.instances[0].die()
		eventually(t, func() bool {
			f := find("instances", "is offline")
			return f != nil && f.Level == config.LevelWarning && f.Do != ""
		}, time.Minute, 20*time.Millisecond, "the server that is gone is named")
	})
}
