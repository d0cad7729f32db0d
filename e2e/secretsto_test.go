package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A worker gets the API keys of prompts only if secrets_to names it.
func TestSecretsToAWorker(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		secretsTo string
		gets      bool
	}{
		"by default": {"", false},
		"others":     {"secrets_to worker:cellar/*", false},
		"named":      {"secrets_to worker:attic/*", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "embedded")
			if tc.secretsTo != "" {
				f.configure(tc.secretsTo)
			}
			f.startHub()
			token, err := os.ReadFile(f.token("attic"))
			require.NoError(t, err)
			next := func() (job struct {
				Status string
				Extra  map[string]any `json:"extra_data"`
			},
			) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL("/next-job?wait=1&worker_id=one&classes=Uppercase"), nil)
				require.NoError(t, err)
				r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
				resp, err := http.DefaultClient.Do(r)
				require.NoError(t, err)
				defer resp.Body.Close()
				require.NoError(t, json.NewDecoder(resp.Body).Decode(&job))
				return job
			}
			require.Equal(t, "no_jobs", next().Status)
			f.idle(1)
			f.eventually(func() bool {
				resp, err := http.Post(f.URL("/submit"), "application/json", strings.NewReader(`{
					"workflow": {"1": {"class_type": "Uppercase", "inputs": {"text": "a fox"}}},
					"extra_data": {"note": "n", "api_key_comfy_org": "very secret"}}`))
				require.NoError(t, err)
				defer resp.Body.Close()
				return resp.StatusCode == http.StatusOK
			}, "the hub knows what the worker can run")
			job := next()
			for job.Status == "no_jobs" {
				job = next()
			}
			require.Equal(t, "n", job.Extra["note"])
			key, got := job.Extra["api_key_comfy_org"]
			require.Equal(t, tc.gets, got)
			if got {
				require.Equal(t, "very secret", key)
			}
		})
	}
}
