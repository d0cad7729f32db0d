package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
)

// A prompt that the operator does not allow is refused as ComfyUI refuses one whose nodes have
// errors, in each dialect; it reaches no instance.
func TestRules(t *testing.T) {
	t.Parallel()
	b := shared(t, TenantLimits{}, func(b *bench) {
		b.settings.Rules = Rules{DenyClasses: []string{"Simulated*"}, Max: map[string]float64{"width": 100, "batch": 2}}
		b.settings.RulesOf = map[string]Rules{"bob": {DenyModels: []string{"secret*"}}}
		b.instances = append(b.instances, newInstance(t, sim.Config{}))
	})
	post := func(tenant, graph string) (int, string) {
		return b.as(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "a"}`, graph))
	}
	wide := strings.Replace(picture(1), `"width": 64`, `"width": 101`, 1)
	large := strings.Replace(wide, `"batch_size": 1`, `"batch_size": "3"`, 1)
	for _, c := range []struct {
		graph, node, class string
		inputs             []string
	}{
		{wide, "1", "EmptyImage", []string{"width"}},
		{large, "1", "EmptyImage", []string{"width", "batch_size"}},
		{work(1, 1, "none"), "2", "SimulatedWork", nil},
	} {
		status, text := post("ann", c.graph)
		require.Equal(t, http.StatusBadRequest, status, text)
		var answer struct {
			Error      struct{ Type, Message, Details string }
			NodeErrors map[string]struct {
				Errors []struct {
					Type, Message, Details string
					ExtraInfo              struct {
						InputName string `json:"input_name"`
						Rule      string
					} `json:"extra_info"`
				}
				Class      string   `json:"class_type"`
				Dependents []string `json:"dependent_outputs"`
			} `json:"node_errors"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &answer), text)
		require.Equal(t, "prompt_outputs_failed_validation", answer.Error.Type)
		require.Len(t, answer.NodeErrors, 1, text)
		node := answer.NodeErrors[c.node]
		require.Equal(t, c.class, node.Class)
		require.NotEmpty(t, node.Dependents)
		if c.inputs == nil {
			require.Len(t, node.Errors, 1)
			require.Equal(t, "exception_during_validation", node.Errors[0].Type)
			require.Equal(t, "class_type", node.Errors[0].ExtraInfo.Rule)
			require.Contains(t, node.Errors[0].Details, c.class)
			continue
		}
		require.Len(t, node.Errors, len(c.inputs))
		for n, input := range c.inputs {
			require.Equal(t, "value_bigger_than_max", node.Errors[n].Type, "the web UI shows no reason of a type that it does not know")
			require.Regexp(t, `^Value \d+ bigger than max of \d+$`, node.Errors[n].Message)
			require.Equal(t, input, node.Errors[n].ExtraInfo.InputName)
			require.Contains(t, node.Errors[n].Details, "at most")
		}
	}
	status, text := b.as("ann", "POST", "/hub/v1/submit", fmt.Sprintf(`{"workflow": %s}`, wide))
	require.Equal(t, http.StatusUnprocessableEntity, status, text)
	require.Contains(t, text, "at most")
	require.Zero(t, started(b))

	status, text = post("bob", wide)
	require.Equal(t, http.StatusOK, status, "bob has rules of his own: %s", text)
	status, text = post("ann", picture(2))
	require.Equal(t, http.StatusOK, status, text)
}

// A request for A1111 is bounded as its server will read it, in each dialect that has such
// requests, and a denied model stays out by whatever name.
func TestRulesOfA1111(t *testing.T) {
	t.Parallel()
	server := newA1111(t, simsd.Config{Models: []string{"open.safetensors", "nsfw/internal-secret.safetensors"}, Loras: []string{"ink", "internal-ink"}})
	b := withA1111(t, 0, server)
	b.settings.Rules = Rules{DenyModels: []string{"internal-*"}, Max: map[string]float64{"steps": 10, "width": 512, "batch": 1}}
	require.NoError(t, b.hub.Start(t.Context(), b.settings))
	c := sd{b: b, name: "webuiapi"}
	hash := ""
	for _, form := range b.hub.classes.options("A1111Checkpoint", "checkpoint") {
		if _, behind, ok := strings.Cut(form, "internal-secret.safetensors ["); ok {
			hash = strings.TrimSuffix(behind, "]")
		}
	}
	require.NotEmpty(t, hash)
	const open = `"override_settings": {"sd_model_checkpoint": "open"}`
	for _, refused := range []struct{ payload, member string }{
		{`{"steps": 20, ` + open + `}`, "steps"},
		{`{` + open + `}`, "steps"},
		{`{"steps": 1, "width": 1024, ` + open + `}`, "width"},
		{`{"steps": 1, "batch_size": 2, ` + open + `}`, "batch_size"},
		{`{"steps": 1, "n_iter": 2, ` + open + `}`, "n_iter"},
		{`{"steps": 1, "enable_hr": true, ` + open + `}`, "hr_scale"},
		{`{"steps": 1}`, "sd_model_checkpoint"},
		{`{"steps": 1, "override_settings": {"sd_model_checkpoint": "internal-secret"}}`, "sd_model_checkpoint"},
		{`{"steps": 1, "override_settings": {"sd_model_checkpoint": "nsfw_internal-secret"}}`, "sd_model_checkpoint"},
		{`{"steps": 1, "override_settings": {"sd_model_checkpoint": "` + hash + `"}}`, "sd_model_checkpoint"},
		{`{"steps": 1, "override_settings": {"sd_model_checkpoint": "open", "sd_vae": "internal-vae.pt"}}`, "sd_vae"},
		{`{"steps": 1, "refiner_checkpoint": "internal-secret", ` + open + `}`, "refiner_checkpoint"},
		{`{"steps": 1, "prompt": "<lora:internal-ink:1>", ` + open + `}`, "prompt"},
		{`{"steps": 1, "infotext": "a\nSteps: 150", ` + open + `}`, "infotext"},
		{`{"steps": 1, "override_settings": {"sd_model_checkpoint": "open", "outdir_samples": "/tmp"}}`, "outdir_samples"},
	} {
		for _, path := range []string{"txt2img", "img2img"} {
			status, answer := c.do("POST", "/sdapi/v1/"+path, refused.payload)
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", refused.payload, answer)
			var problem struct {
				Detail []struct {
					Loc  []string
					Msg  string
					Type string
				}
			}
			require.NoError(t, json.Unmarshal([]byte(answer), &problem), answer)
			require.Len(t, problem.Detail, 1, answer)
			require.Equal(t, "body", problem.Detail[0].Loc[0])
			require.Equal(t, refused.member, problem.Detail[0].Loc[len(problem.Detail[0].Loc)-1], answer)
			require.NotContains(t, problem.Detail[0].Msg, "payload")
		}
		status, _, answer := b.orders(refused.payload)
		require.Equal(t, http.StatusUnprocessableEntity, status, answer)
		require.Contains(t, answer, refused.member)
		graph, err := json.Marshal(map[string]any{"1": map[string]any{"class_type": "A1111Txt2Img", "inputs": map[string]any{"payload": refused.payload}}})
		require.NoError(t, err)
		status, answer = c.do("POST", "/prompt", fmt.Sprintf(`{"prompt": %s}`, graph))
		require.Equal(t, http.StatusBadRequest, status, answer)
		require.Contains(t, answer, `"input_name": "payload"`)
		require.Contains(t, answer, refused.member)
	}
	require.Empty(t, server.Done(), "nothing of this reaches a server")

	status, answer := c.do("POST", "/sdapi/v1/options", `{"sd_model_checkpoint": "internal-secret"}`)
	require.Equal(t, http.StatusOK, status, answer)
	status, answer = c.do("POST", "/sdapi/v1/txt2img", `{"steps": 1}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, answer)
	require.Contains(t, answer, "internal-secret")
	status, answer = c.do("POST", "/sdapi/v1/options", `{"sd_model_checkpoint": "open"}`)
	require.Equal(t, http.StatusOK, status, answer)
	c.made("txt2img", `{"steps": 10, "width": 64, "height": 64, "prompt": "<lora:ink:1>", "alwayson_scripts": {}, "script_name": null, "styles": [], "override_settings": {}}`)
	require.Contains(t, server.Done()[0].Checkpoint, "open.safetensors")
	require.Equal(t, http.StatusForbidden, first(c.do("POST", "/controlnet/txt2img", `{"steps": 150}`)), "routes that nobody judges are closed to who has rules")
}

// A server is never asked for a part of a checkpoint's name: it would take whatever begins with
// it, or what is loaded.
func TestA1111TakesWholeNames(t *testing.T) {
	t.Parallel()
	server := newA1111(t, simsd.Config{Models: []string{"open.safetensors", "secret.safetensors"}})
	b := withA1111(t, 0, server)
	c := sd{b: b, name: "webuiapi"}
	for _, payload := range []string{
		`{"steps": 1, "refiner_checkpoint": "secr"}`, `{"steps": 1, "enable_hr": true, "hr_checkpoint_name": "None"}`,
		`{"steps": 1, "override_settings": {"sd_model_checkpoint": "pen"}}`,
	} {
		status, answer := c.do("POST", "/sdapi/v1/txt2img", payload)
		require.Equal(t, http.StatusInternalServerError, status, answer)
		require.Contains(t, answer, "the server has no checkpoint")
	}
	require.Empty(t, server.Done())
	c.made("txt2img", `{"steps": 1, "width": 8, "height": 8, "refiner_checkpoint": "secret", "hr_checkpoint_name": ""}`)
	require.Contains(t, server.Done()[0].Payload.String("refiner_checkpoint"), "secret.safetensors [")
}
