package simsd

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ask makes a request of a server.
func ask(t *testing.T, s *Server, method, path, body string) (int, pyjson.Value) {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(method, "/sdapi/v1/"+path, strings.NewReader(body)))
	v, err := pyjson.Parse(w.Body.Bytes())
	require.NoError(t, err, path)
	return w.Code, v
}

// The answers have the members of A1111's response models, and no others: its
// modules/api/models.py.
func TestResponseModels(t *testing.T) {
	t.Parallel()
	s := New(Config{Loras: []string{"ink"}})
	square := base64.StdEncoding.EncodeToString(paint(8, 8, colorOf(1), colorOf(1), "a cat"))
	for _, c := range []struct{ method, path, body, members string }{
		{"POST", "txt2img", `{"steps": 1, "width": 8, "height": 8}`, "images parameters info"},
		{"POST", "img2img", `{"steps": 1, "width": 8, "height": 8, "init_images": ["` + square + `"]}`, "images parameters info"},
		{"POST", "extra-single-image", `{"image": "` + square + `"}`, "html_info image"},
		{"POST", "extra-batch-images", `{"imageList": [{"data": "` + square + `", "name": "a"}]}`, "html_info images"},
		{"POST", "png-info", `{"image": "data:image/png;base64,` + square + `"}`, "info items parameters"},
		{"POST", "interrogate", `{"image": "` + square + `"}`, "caption"},
		{"GET", "progress", "", "progress eta_relative state current_image textinfo"},
		{"GET", "memory", "", "ram cuda"},
		{"GET", "scripts", "", "txt2img img2img"},
		{"GET", "embeddings", "", "loaded skipped"},
		{"GET", "sd-models", "", "title model_name hash sha256 filename config"},
		{"GET", "loras", "", "name alias path metadata"},
		{"GET", "samplers", "", "name aliases options"},
		{"GET", "schedulers", "", "name label aliases default_rho need_inner_model"},
		{"GET", "upscalers", "", "name model_name model_path model_url scale"},
		{"GET", "latent-upscale-modes", "", "name"},
	} {
		status, v := ask(t, s, c.method, c.path, c.body)
		require.Equal(t, http.StatusOK, status, c.path)
		if list, ok := v.(pyjson.Array); ok {
			require.NotEmpty(t, list, c.path)
			v = list[0]
		}
		o, ok := v.(*pyjson.Object)
		require.True(t, ok, c.path)
		require.Equal(t, c.members, strings.Join(o.Keys(), " "), c.path)
	}
	_, v := ask(t, s, "GET", "progress", "")
	o, _ := v.(*pyjson.Object)
	require.Equal(t, "skipped interrupted stopping_generation job job_count job_timestamp job_no sampling_step sampling_steps", strings.Join(o.Object("state").Keys(), " "))
}

// Errors have A1111's form, or FastAPI's.
func TestErrors(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"img2img", `{}`, 404, `{"error": "HTTPException", "detail": "Init image not found", "body": "", "errors": ""}`},
		{"img2img", `{"init_images": ["x"]}`, 500, `"detail": "Invalid encoded image"`},
		{"txt2img", `{"sampler_name": "x"}`, 404, `"detail": "Sampler not found"`},
		{"txt2img", `{"steps": "x"}`, 422, `{"detail": [{"loc": ["body", "steps"]`},
		{"txt2img", `[]`, 422, `"loc": ["body"`},
		{"png-info", `{}`, 422, `{"detail": [{"loc": ["body", "image"], "msg": "field required"`},
		{"options", `{"sd_model_checkpoint": "x"}`, 500, `"error": "RuntimeError"`},
		{"nowhere", `{}`, 404, `{"detail": "Not Found"}`},
	} {
		status, v := ask(t, s, "POST", c.path, c.body)
		require.Equal(t, c.status, status, c.path)
		require.Contains(t, string(pyjson.Marshal(v)), c.want)
	}
	require.Empty(t, s.Done())
}

// A checkpoint of override_settings is loaded for the request, and stays if the request says so.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	s := New(Config{Models: []string{"a.safetensors", "b.safetensors"}})
	loaded := func() string {
		_, v := ask(t, s, "GET", "options", "")
		o, _ := v.(*pyjson.Object)
		return o.String("sd_model_checkpoint")
	}
	require.Equal(t, title("a.safetensors"), loaded())
	body := `{"steps": 1, "width": 8, "height": 8, "override_settings": {"sd_model_checkpoint": "b"}`
	ask(t, s, "POST", "txt2img", body+`}`)
	require.Equal(t, title("b.safetensors"), s.Done()[0].Checkpoint)
	require.Equal(t, title("a.safetensors"), loaded())
	ask(t, s, "POST", "txt2img", body+`, "override_settings_restore_afterwards": false}`)
	require.Equal(t, title("b.safetensors"), loaded())
}
