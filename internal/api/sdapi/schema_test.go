package sdapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
	"github.com/comfyhub/comfyhub/internal/submit"
)

// shape is what an answer consists of, in the words of A1111's OpenAPI document: "null", "{}"
// for an empty object, "object" for any other, or a list of members. A member is a name and a
// type: text, whole, number, bool, object, list, [text]; "?" allows null. FastAPI leaves no
// member of a model out. With "list of " the answer is a list of these, and no empty one here.
type shape string

const (
	shapePictures = shape("images [text]?, parameters object, info text")
	shapeTask     = shape("active bool, queued bool, completed bool, progress number?, eta number?, live_preview text?, id_live_preview whole?, textinfo text?")
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
		{"GET /sdapi/v1/progress", "", "progress number, eta_relative number, state object, current_image text?, textinfo text?"},
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

// The hub has the routes that A1111 publishes, and answers each as its schema says.
func TestSchema(t *testing.T) {
	t.Parallel()
	b := newBench(t, simsd.New(simsd.Config{Loras: []string{"ink"}}), simsd.New(simsd.Config{Loras: []string{"oil"}}))
	b.Does = func(s submit.Submission) (job.State, string) {
		text := string(s.Graph.Bytes())
		for class, rest := range map[string]string{
			a1111.ClassExtraSingle: `{"html_info": "h"}`, a1111.ClassExtraBatch: `{"html_info": "h"}`, a1111.ClassInterrogate: `{"caption": "c"}`,
			a1111.ClassPNGInfo: `{"info": "i", "items": {"a": 1}, "parameters": {"a": 1}}`,
		} {
			if strings.Contains(text, `"`+class+`"`) {
				return job.Done, shows(rest, 1)
			}
		}
		return job.Done, shows(`{"parameters": {"a": 1}, "info": "i"}`, 1)
	}
	routes := map[string]bool{"GET /sdapi/v1/sd-modules": true}
	for _, p := range published("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptV") {
		method, path, _ := strings.Cut(p.route, " ")
		d := json.NewDecoder(strings.NewReader(b.Gets(ann, method, path, p.body)))
		d.UseNumber()
		var v any
		require.NoError(t, d.Decode(&v), p.route)
		p.answer.holds(t, p.route, v)
		routes[p.route] = true
	}
	own := map[string]bool{}
	for pattern, methods := range b.Routers()[1].All() {
		for _, method := range methods {
			if !strings.HasSuffix(pattern.String(), "**") {
				own[method+" "+pattern.String()] = true
			}
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(routes)), slices.Sorted(maps.Keys(own)))
}
