package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// plainJob is a job as the plain API shows it.
type plainJob struct {
	ID, Status string
	Result     struct{ Files []struct{ URL string } }
}

// plainJobs is how many jobs the clients of TestManyPlainClients submit together;
// COMFYHUB_PLAIN_JOBS sets another number, such as 1000.
const plainJobs = 150

// Fifty programs that know nothing of ComfyUI submit, poll and fetch at once. Each gets its
// own pictures, and none is lost.
func TestManyPlainClients(t *testing.T) {
	t.Parallel()
	const clients = 50
	jobs := plainJobs
	if text := os.Getenv("COMFYHUB_PLAIN_JOBS"); text != "" {
		var err error
		jobs, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	f := newFleet(t, "embedded")
	f.startHub()
	f.startAgent("gpu", 6)
	f.idle(6)
	began := time.Now()
	var group errgroup.Group
	for client := range clients {
		group.Go(func() error {
			for n := range jobs / clients {
				if err := f.plainPicture(client<<16|n+1, client%2 == 0); err != nil {
					return fmt.Errorf("client %d, job %d: %w", client, n, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	t.Logf("%d jobs of %d clients in %s", jobs, clients, time.Since(began).Round(time.Millisecond))
	var stats struct{ Queued, Processing, Completed, Failed, Cancelled int }
	require.True(t, f.get("/stats", &stats))
	require.Equal(t, jobs/clients*clients, stats.Completed)
	require.Zero(t, stats.Queued+stats.Processing+stats.Failed+stats.Cancelled)
}

// plainPicture has a picture of one colour made by the plain API, and looks at every pixel.
func (f *fleet) plainPicture(colour int, poll bool) error {
	var job plainJob
	err := plainCall("POST", f.URL("/submit"), fmt.Sprintf(`{"workflow": {
		"1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": %d}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "plain"}}}}`, colour), &job)
	if err != nil {
		return err
	}
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for deadline := time.Now().Add(patience); job.Status == "queued" || job.Status == "processing"; {
		if time.Now().After(deadline) {
			return errors.New("the job does not end")
		}
		path := "/wait/" + job.ID + "?timeout=30"
		if poll {
			<-pause.C
			path = "/status/" + job.ID
		}
		if err := plainCall("GET", f.URL(path), "", &job); err != nil {
			return err
		}
	}
	if job.Status != "completed" || len(job.Result.Files) != 1 {
		return fmt.Errorf("job %s: %s, %d files", job.ID, job.Status, len(job.Result.Files))
	}
	resp, err := http.Get(job.Result.Files[0].URL)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	picture, err := png.Decode(resp.Body)
	if err != nil {
		return err
	}
	for n := range 16 * 16 {
		r, g, b, _ := picture.At(n%16, n/16).RGBA()
		if got := int(r>>8)<<16 | int(g>>8)<<8 | int(b>>8); got != colour {
			return fmt.Errorf("the colour %06x, not %06x", got, colour)
		}
	}
	return nil
}

func plainCall(method, url, body string, v any) error {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, answer)
	}
	return json.Unmarshal(answer, v)
}

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
