package hub

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim/simsd"
)

// Options are the tenant's own, and change nothing for anybody else.
func TestA1111Options(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newA1111(t, simsd.Config{Models: []string{"a.safetensors", "b.safetensors"}})
		b := withA1111(t, 0, server)
		ann, eve := sd{b: b, name: "x", login: "ann"}, sd{b: b, name: "x", login: "eve"}
		status, answer := ann.do("POST", "/sdapi/v1/options", `{"sd_model_checkpoint": "b", "CLIP_stop_at_last_layers": 2, "samples_format": "png", "civitai_api_key": ""}`)
		require.Equal(t, http.StatusOK, status, answer)
		require.Equal(t, "null", answer)
		_, kept := ann.do("GET", "/userdata/a1111.options.json", "")
		require.Equal(t, `{"sd_model_checkpoint": "b", "CLIP_stop_at_last_layers": 2}`, kept, "what is as on the server is not kept")
		_, answer = ann.do("GET", "/sdapi/v1/options", "")
		require.Contains(t, answer, `"sd_model_checkpoint": "b"`)
		_, answer = eve.do("GET", "/sdapi/v1/options", "")
		require.Contains(t, answer, `"sd_model_checkpoint": "a.safetensors [`)
		require.Contains(t, answer, `"civitai_api_key": ""`, "the operator's secret")
		const overrides = `{"steps": 1, "width": 8, "height": 8, "override_settings": {"CLIP_stop_at_last_layers": 3}, "override_settings_restore_afterwards": false}`
		ann.made("txt2img", overrides)
		done := server.Done()[0]
		require.Contains(t, done.Checkpoint, "b.safetensors")
		settings, _ := json.Marshal(done.Payload.Object("override_settings").Keys())
		require.JSONEq(t, `["CLIP_stop_at_last_layers", "sd_model_checkpoint"]`, string(settings))
		eve.made("txt2img", `{"steps": 1, "width": 8, "height": 8}`)
		require.Contains(t, server.Done()[1].Checkpoint, "a.safetensors")
		_, answer = eve.do("GET", "/sdapi/v1/options", "")
		require.Contains(t, answer, `"CLIP_stop_at_last_layers": 1`, "a request changes no server")
		for body, want := range map[string]string{
			`{"nothing": 1}`:                                    `"error": "KeyError"`,
			`{"sd_model_checkpoint": "no"}`:                     `"errors": "model 'no' not found"`,
			`{"sd_model_checkpoint": 5}`:                        `"error": "TypeError"`,
			`{"sd_vae": "` + strings.Repeat("x", 60<<10) + `"}`: "",
			`{"sd_vae": "` + strings.Repeat("x", 70<<10) + `"}`: "",
		} {
			status, answer = ann.do("POST", "/sdapi/v1/options", body)
			if want != "" {
				require.Equal(t, http.StatusInternalServerError, status)
				require.Contains(t, answer, want)
			}
		}
		require.Equal(t, http.StatusRequestEntityTooLarge, first(ann.do("POST", "/sdapi/v1/options", `{"sd_vae": "`+strings.Repeat("x", 70<<10)+`"}`)))
		_, answer = ann.do("POST", "/sdapi/v1/options", `{"sd_model_checkpoint": null, "CLIP_stop_at_last_layers": 1, "sd_vae": null}`)
		require.Equal(t, "null", answer)
		_, kept = ann.do("GET", "/userdata/a1111.options.json", "")
		require.Equal(t, "{}", kept)
	})
}

func first(status int, _ string) int { return status }

// Lists are those of all servers as one; what is no route of the hub passes as the operator
// allows.
func TestA1111Lists(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one := newA1111(t, simsd.Config{Models: []string{"one.safetensors", "both.safetensors"}, Loras: []string{"ink"}})
		two := newA1111(t, simsd.Config{Models: []string{"two.safetensors", "both.safetensors"}, Loras: []string{"ink", "oil"}})
		b := withA1111(t, 1, one, two)
		c, login := sd{b: b, name: "lister"}, sd{b: b, name: "lister", login: "ann"}
		two.AddModel("new.safetensors")
		status, answer := c.do("POST", "/sdapi/v1/refresh-checkpoints", "")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "null", answer)
		for path, want := range map[string]int{"sd-models": 4, "loras": 2, "samplers": 2, "schedulers": 1, "sd-vae": 1} {
			status, answer = c.do("GET", "/sdapi/v1/"+path, "")
			require.Equal(t, http.StatusOK, status, path)
			var list []map[string]any
			require.NoError(t, json.Unmarshal([]byte(answer), &list), path)
			require.Len(t, list, want, path)
		}
		for _, path := range []string{"scripts", "embeddings", "cmd-flags", "memory", "script-info", "extensions"} {
			require.Equal(t, http.StatusOK, first(c.do("GET", "/sdapi/v1/"+path, "")), path)
		}
		for _, want := range []struct {
			c            sd
			method, path string
			status       int
		}{
			{c, "GET", "/controlnet/model_list", 200},
			{login, "GET", "/controlnet/model_list", 200},
			{c, "POST", "/controlnet/detect", 404},
			{login, "POST", "/controlnet/detect", 403},
			{c, "POST", "/sdapi/v1/server-kill", 403},
			{c, "POST", "/sdapi/v1/create/embedding", 403},
			{c, "POST", "/sdapi/v1/TXT2IMG", 404},
			{c, "POST", "/sdapi/v1/txt2img/", 404},
			{c, "DELETE", "/sdapi/v1/txt2img", 405},
		} {
			require.Equal(t, want.status, first(want.c.do(want.method, want.path, "{}")), "%s %s %s", want.c.login, want.method, want.path)
		}
	})
}

// The operator may leave the API out: its paths are then those of any custom node. A reload
// switches it.
func TestA1111APISwitch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		for _, off := range []bool{false, true, false} {
			b.settings.NoA1111API = off
			require.NoError(t, b.hub.Start(t.Context(), b.settings))
			status, answer := b.get("/sdapi/v1/progress")
			require.Equal(t, off, status == http.StatusNotFound, "%d %s", status, answer)
			status, _ = b.get("/system_stats")
			require.Equal(t, http.StatusOK, status)
		}
	})
}
