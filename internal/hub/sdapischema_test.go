package hub

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim/simsd"
)

// shape is what an answer consists of, in the words of A1111's OpenAPI document: "null", "{}"
// for an empty object, "object" for any other, or a list of members. A member is a name and a
// type: text, whole, number, bool, object, list, [text]; "?" allows null. FastAPI leaves no
// member of a model out. With "list of " the answer is a list of these, and no empty one here.
type shape string

const (
	shapePictures = shape("images [text]?, parameters object, info text")
	shapeProgress = shape("progress number, eta_relative number, state object, current_image text?, textinfo text?")
	// shapeState is the member of that name in progress.
	shapeState = shape("skipped bool, interrupted bool, stopping_generation bool, job text, job_count whole, job_timestamp text, job_no whole, " +
		"sampling_step whole, sampling_steps whole")
	shapeTask = shape("active bool, queued bool, completed bool, progress number?, eta number?, live_preview text?, id_live_preview whole?, textinfo text?")
	// shapeProblem is an exception, shapeRefusal an error of FastAPI itself, shapePlace a member
	// of one for a body.
	shapeProblem = shape("error text, detail text, body text, errors text")
	shapeRefusal = shape("detail text")
	shapePlace   = shape("loc list, msg text, type text")
)

// published are the routes of A1111 1.10.1 with what they answer (modules/api/api.py and models.py,
// modules/progress.py, and the built-in extension Lora), without those that train, create, or
// stop the server. The hub has no others, but sd-modules of Forge.
func published(image string) []struct {
	route, body string
	answer      shape
} {
	return []struct {
		route, body string
		answer      shape
	}{
		{"POST /sdapi/v1/txt2img", `{"steps": 1, "width": 8, "height": 8}`, shapePictures},
		{"POST /sdapi/v1/img2img", `{"steps": 1, "width": 8, "height": 8, "init_images": ["` + image + `"]}`, shapePictures},
		{"POST /sdapi/v1/extra-single-image", `{"image": "` + image + `"}`, "html_info text, image text?"},
		{"POST /sdapi/v1/extra-batch-images", `{"imageList": [{"data": "` + image + `", "name": "a"}]}`, "html_info text, images [text]"},
		{"POST /sdapi/v1/png-info", `{"image": "` + image + `"}`, "info text, items object, parameters object"},
		{"POST /sdapi/v1/interrogate", `{"image": "` + image + `", "model": "clip"}`, "caption text?"},
		{"GET /sdapi/v1/progress", "", shapeProgress},
		{"POST /sdapi/v1/interrupt", "", "{}"},
		{"POST /sdapi/v1/skip", "", "null"},
		{"GET /sdapi/v1/options", "", "object"},
		{"POST /sdapi/v1/options", `{"CLIP_stop_at_last_layers": 2}`, "null"},
		{"GET /sdapi/v1/cmd-flags", "", "api bool, api_auth text, data_dir text, port text?, use_cpu list"}, // as the simulated server has them
		{"GET /sdapi/v1/samplers", "", "list of name text, aliases [text], options object"},
		{"GET /sdapi/v1/schedulers", "", "list of name text, label text, aliases [text]?, default_rho number?, need_inner_model bool?"},
		{"GET /sdapi/v1/upscalers", "", "list of name text, model_name text?, model_path text?, model_url text?, scale number?"},
		{"GET /sdapi/v1/latent-upscale-modes", "", "list of name text"},
		{"GET /sdapi/v1/sd-models", "", "list of title text, model_name text, hash text?, sha256 text?, filename text, config text?"},
		{"GET /sdapi/v1/sd-vae", "", "list of model_name text, filename text"},
		{"GET /sdapi/v1/hypernetworks", "", "list of name text, path text?"},
		{"GET /sdapi/v1/face-restorers", "", "list of name text, cmd_dir text?"},
		{"GET /sdapi/v1/realesrgan-models", "", "list of name text, path text?, scale whole?"},
		{"GET /sdapi/v1/prompt-styles", "", "list of name text, prompt text?, negative_prompt text?"},
		{"GET /sdapi/v1/embeddings", "", "loaded object, skipped object"},
		{"GET /sdapi/v1/memory", "", "ram object, cuda object"},
		{"GET /sdapi/v1/scripts", "", "txt2img list?, img2img list?"},
		{"GET /sdapi/v1/script-info", "", "list of name text?, is_alwayson bool?, is_img2img bool?, args list"},
		{"GET /sdapi/v1/extensions", "", "list of name text, remote text, branch text, commit_hash text, version text, commit_date text, enabled bool"},
		{"GET /sdapi/v1/loras", "", "list of name text, alias text, path text, metadata object"},
		{"POST /sdapi/v1/refresh-checkpoints", "", "null"},
		{"POST /sdapi/v1/refresh-vae", "", "null"},
		{"POST /sdapi/v1/refresh-embeddings", "", "null"},
		{"POST /sdapi/v1/refresh-loras", "", "null"},
		{"POST /sdapi/v1/unload-checkpoint", "", "{}"},
		{"POST /sdapi/v1/reload-checkpoint", "", "{}"},
		{"POST /internal/progress", `{"id_task": "task(x)"}`, shapeTask},
		{"POST /internal/progress", `{}`, shapeTask},
		{"GET /internal/pending-tasks", "", "size whole, tasks [text]"},
	}
}

// holds requires that an answer has a shape.
func (s shape) holds(t *testing.T, about string, answer any) {
	t.Helper()
	switch string(s) {
	case "null":
		require.Nil(t, answer, about)
		return
	case "{}":
		require.Equal(t, map[string]any{}, answer, about)
		return
	case "object":
		require.NotEmpty(t, answer.(map[string]any), about)
		return
	}
	if members, ok := strings.CutPrefix(string(s), "list of "); ok {
		list, ok := answer.([]any)
		require.True(t, ok, "%s: %v", about, answer)
		require.NotEmpty(t, list, about)
		for _, item := range list {
			shape(members).holds(t, about, item)
		}
		return
	}
	object, ok := answer.(map[string]any)
	require.True(t, ok, "%s: %v", about, answer)
	want := map[string]bool{}
	for member := range strings.SplitSeq(string(s), ", ") {
		name, kind, _ := strings.Cut(member, " ")
		want[name] = true
		v, there := object[name]
		require.True(t, there, "%s: no %s", about, name)
		require.True(t, isA(kind, v), "%s: %s is %v, want %s", about, name, v, kind)
	}
	for name := range object {
		require.True(t, want[name], "%s: %s is no member", about, name)
	}
}

func isA(kind string, v any) (ok bool) {
	kind, nullable := strings.CutSuffix(kind, "?")
	if v == nil {
		return nullable
	}
	switch kind {
	case "text":
		_, ok = v.(string)
	case "whole":
		n, is := v.(json.Number)
		ok = is && !strings.ContainsAny(n.String(), ".eE")
	case "number":
		_, ok = v.(json.Number)
	case "bool":
		_, ok = v.(bool)
	case "object":
		_, ok = v.(map[string]any)
	case "list":
		_, ok = v.([]any)
	case "[text]":
		list, is := v.([]any)
		ok = is && !slices.ContainsFunc(list, func(item any) bool { return !isA("text", item) })
	}
	return ok
}

// decoded is an answer of the API.
func (c sd) decoded(method, path, body string, status int) any {
	c.b.t.Helper()
	got, text := c.do(method, path, body)
	require.Equal(c.b.t, status, got, "%s %s: %s", method, path, text)
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	require.NoError(c.b.t, d.Decode(&v), text)
	return v
}

// The hub has the routes that A1111 publishes, and answers each as its schema says.
func TestA1111Schema(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := withA1111(t, 0, newA1111(t, simsd.Config{Loras: []string{"ink"}}), newA1111(t, simsd.Config{Loras: []string{"oil"}}))
		c := sd{b: b, name: "webuiapi"}
		image := c.made("txt2img", `{"steps": 1, "width": 8, "height": 8}`).Images[0]
		routes := map[string]bool{"GET /sdapi/v1/sd-modules": true}
		for _, p := range published(image) {
			method, path, _ := strings.Cut(p.route, " ")
			p.answer.holds(t, p.route, c.decoded(method, path, p.body, http.StatusOK))
			routes[p.route] = true
		}
		own := map[string]bool{}
		for _, table := range b.rooms.Routers() {
			for pattern, methods := range table.All() {
				path := pattern.String()
				if strings.HasPrefix(path, "/sdapi/") && !strings.HasSuffix(path, "**") || path == "/internal/progress" || path == "/internal/pending-tasks" {
					for _, method := range methods {
						own[method+" "+path] = true
					}
				}
			}
		}
		require.Equal(t, slices.Sorted(maps.Keys(routes)), slices.Sorted(maps.Keys(own)))
	})
}

// What a job shows while it runs and while it waits has the published shape, and so has what
// is left of it when it is interrupted.
func TestA1111SchemaAtWork(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newA1111(t, simsd.Config{StepTime: time.Millisecond})
		b := withA1111(t, 0, server)
		runs, waits := sd{b: b, name: "runs"}, sd{b: b, name: "waits"}
		answers := make(chan any, 2)
		begin := func(c sd, id string) {
			go func() {
				_, text := c.do("POST", "/sdapi/v1/txt2img", fmt.Sprintf(`{"steps": 1000000, "width": 8, "height": 8, "force_task_id": %q}`, id))
				var v any
				_ = json.Unmarshal([]byte(text), &v)
				answers <- v
			}()
		}
		begin(runs, "r")
		b.running(1, server)
		begin(waits, "w")
		eventually(t, func() bool {
			_, text := waits.do("GET", "/internal/pending-tasks", "")
			return strings.Contains(text, `"w"`)
		}, time.Minute, time.Millisecond)
		for c, id := range map[sd]string{runs: "r", waits: "w"} {
			seen, _ := c.decoded("GET", "/sdapi/v1/progress", "", http.StatusOK).(map[string]any)
			shapeProgress.holds(t, c.name, seen)
			shapeState.holds(t, c.name, seen["state"])
			share := must(seen["progress"].(json.Number).Float64())(t)
			require.True(t, share >= 0 && share <= 1, share)
			shapeTask.holds(t, c.name, c.decoded("POST", "/internal/progress", `{"id_task": "`+id+`", "id_live_preview": -1, "live_preview": true}`, http.StatusOK))
		}
		for _, c := range []sd{waits, runs} {
			shape("{}").holds(t, c.name, c.decoded("POST", "/sdapi/v1/interrupt", "", http.StatusOK))
			shapePictures.holds(t, c.name, <-answers)
		}
		seen, _ := runs.decoded("GET", "/sdapi/v1/progress", "", http.StatusOK).(map[string]any)
		shapeProgress.holds(t, "nothing to do", seen)
		shapeState.holds(t, "nothing to do", seen["state"])
	})
}

// Errors have the published shapes: an exception's, FastAPI's, or FastAPI's for a body.
// TestA1111Answers has more of them, word for word.
func TestA1111SchemaOfErrors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newA1111(t, simsd.Config{})
		b := withA1111(t, 0, server)
		c := sd{b: b, name: "webuiapi"}
		for _, e := range []struct {
			route, body string
			status      int
			answer      shape
		}{
			{"POST /sdapi/v1/interrogate", `{}`, 500, shapeProblem},
			{"POST /sdapi/v1/options", `{"no such": 1}`, 500, shapeProblem},
			{"POST /sdapi/v1/png-info", `{}`, 422, shapePlace}, // image is required
			{"POST /sdapi/v1/extra-batch-images", `{}`, 422, shapePlace},
			{"POST /sdapi/v1/txt2img", ``, 422, shapePlace},
			{"POST /sdapi/v1/options", `[]`, 422, shapePlace},
			{"POST /internal/progress", `{"id_task": 5}`, 422, shapePlace},
			{"GET /sdapi/v1/txt2img", ``, 405, shapeRefusal},
			{"GET /sdapi/v1/nowhere", ``, 404, shapeRefusal},
		} {
			method, path, _ := strings.Cut(e.route, " ")
			v := c.decoded(method, path, e.body, e.status)
			if e.answer == shapePlace {
				list, _ := v.(map[string]any)["detail"].([]any)
				require.Len(t, list, 1, e.route)
				v = list[0]
			}
			e.answer.holds(t, e.route, v)
		}
		server.kill()
		b.readyA1111(0)
		eventually(t, func() bool { return statusOf(c.do("GET", "/sdapi/v1/samplers", "")) == http.StatusServiceUnavailable }, time.Minute, 5*time.Millisecond)
		shapeProblem.holds(t, "no server", c.decoded("GET", "/sdapi/v1/samplers", "", http.StatusServiceUnavailable))
	})
}
