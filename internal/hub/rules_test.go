package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// A prompt that the operator does not allow is refused as ComfyUI refuses one whose nodes have
// errors, in each dialect; it reaches no instance.
func TestRules(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
	})
}
