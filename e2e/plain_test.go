package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The example of docs/job-api.md works as it is written, and says why a job has failed.
func TestExampleOfThePlainAPI(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	f := newFleet(t, "embedded")
	f.startHub()
	f.startAgent("gpu", 1)
	f.idle(1)
	run := func(fail string) (string, error) {
		file := filepath.Join(t.TempDir(), "workflow_api.json")
		require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`{
			"1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 7}},
			"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 1, "steps": 5, "fail": %q}},
			"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "example"}}}`, fail)), 0o600))
		cmd := exec.Command(python, "../examples/jobs/submit.py", file) // #nosec G204 -- our own example
		cmd.Env = append(os.Environ(), "HUB="+f.URL(""))
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		return string(out) + said.String(), err
	}
	said, err := run("none")
	require.NoError(t, err, said)
	require.Contains(t, said, "/view?filename=example_")
	said, err = run("error")
	require.Error(t, err)
	require.Contains(t, said, "simulated", said)
}
