package dispatch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
)

// Servers get the API keys of a prompt beside the rest of extra_data, workers only the rest.
func TestExtraForInstances(t *testing.T) {
	t.Parallel()
	body := job.Body{Extra: []byte(`{"note": "n"}`), Secrets: []byte(`{"api_key_comfy_org": "k"}`)}
	for kind, want := range map[string]string{
		fleet.KindComfyUI: `{"note": "n", "api_key_comfy_org": "k", "comfyhub": {"fence":7,"job":"j"}}`,
		fleet.KindWorker:  `{"note": "n", "comfyhub": {"fence":7,"job":"j"}}`,
	} {
		require.Equal(t, want, string(extraFor(body, job.Job{Key: "j", Fence: 7}, mayHaveSecrets(kind))), kind)
	}
}
