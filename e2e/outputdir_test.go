package e2e

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// pictures returns the pictures below a folder, by their names there.
func pictures(t *testing.T, folder string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".png" {
			name, _ := filepath.Rel(folder, path)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	}))
	return names
}

// keptLine is a line of an agent's note of what the hub keeps.
type keptLine struct {
	Name string `json:"name"`
	At   int64  `json:"at"`
}

// noted returns what an agent has noted of the hub's files, by line.
func noted(file string) (names []string, lines [][]byte) {
	text, _ := os.ReadFile(file)
	for line := range bytes.Lines(text) {
		var k keptLine
		if json.Unmarshal(line, &k) == nil && k.Name != "" {
			names = append(names, k.Name)
		}
		lines = append(lines, line)
	}
	return names, lines
}

// An agent with --output-dir deletes what the hub has kept for --output-age, and nothing else:
// not what is younger, not what others have made or put there, and not what was there before.
func TestOutputFolderIsTidied(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	// A simulated ComfyUI keeps its files in a temporary folder.
	temp := t.TempDir()
	address := must.Get(freeport.Address())(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	must.Get(f.Start(programs.Spec{Name: "comfyui", Path: f.Set.Agent, Args: []string{"simulate", "--count", "1", "--port", port, "--time-scale", "0.1"}, Env: []string{"TMPDIR=" + temp}}))(t)
	var output string
	f.eventually(func() bool {
		found, _ := filepath.Glob(filepath.Join(temp, "comfyui-sim-*", "output"))
		if len(found) != 1 {
			return false
		}
		resp, err := http.Get("http://" + address + "/queue")
		if err != nil {
			return false
		}
		resp.Body.Close()
		output = found[0]
		return true
	}, "the server has an output folder")
	require.NoError(t, os.WriteFile(filepath.Join(output, "before.png"), []byte("from before the agent"), 0o600))

	f.startHub()
	serve := must.Get(freeport.Address())(t)
	state := t.TempDir()
	agent := f.agent("box", "run", "--join", f.Gossip, "--name", "box", "--serve", serve, "--comfyui", "gpu=http://"+address,
		"--output-dir", output, "--output-age", "10m", "--state", state)
	f.idle(1)
	ids := []string{f.submit(0.1, 1), f.submit(0.1, 2), f.submit(0.1, 3)}
	f.succeeded(ids)
	kept := pictures(t, output)
	kept = slices.DeleteFunc(kept, func(name string) bool { return name == "before.png" })
	require.Len(t, kept, 3)

	// What the hub has not made: somebody's own prompt at the server, and a file from elsewhere.
	resp := must.Get(http.Post("http://"+address+"/prompt", "application/json", strings.NewReader(`{"prompt": {
		"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 9}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "own"}}}}`)))(t)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, os.WriteFile(filepath.Join(output, "mine.png"), []byte("mine"), 0o600))
	f.eventually(func() bool { return len(pictures(t, output)) == 6 }, "the server has made the picture")

	var file string
	f.eventually(func() bool {
		found, _ := filepath.Glob(filepath.Join(state, "*.kept"))
		if len(found) != 1 {
			return false
		}
		file = found[0]
		names, _ := noted(file)
		slices.Sort(names)
		return slices.Equal(slices.Compact(names), kept)
	}, "the hub has told the agent of its three files, and of no other")

	// Two of them become old. One look finds both and the young one, and then says so.
	agent.Kill()
	_, lines := noted(file)
	for n, line := range lines {
		var k map[string]any
		require.NoError(t, json.Unmarshal(line, &k))
		if k["name"] == kept[0] || k["name"] == kept[1] {
			lines[n] = bytes.Replace(line, at(t, line), at(t, fmtLine(t, time.Now().Add(-time.Hour))), 1)
		}
	}
	require.NoError(t, os.WriteFile(file, bytes.Join(lines, nil), 0o600))
	// The hub may have copied them, but this one is not what it has copied.
	require.NoError(t, os.WriteFile(filepath.Join(output, filepath.FromSlash(kept[1])), []byte("another"), 0o600))
	require.NoError(t, agent.Restart())
	f.eventually(func() bool {
		log, err := os.ReadFile(filepath.Join(f.Dir, "box.log"))
		return err == nil && bytes.Contains(log, []byte("deleted output files that the hub keeps"))
	}, "the agent has deleted something")
	left := pictures(t, output)
	require.NotContains(t, left, kept[0])
	require.Len(t, left, 5, "%v", left)
	f.idle(1)
	f.succeeded(ids) // the hub still has all
}

// at is the part of a note that says since when the hub keeps a file.
func at(t *testing.T, line []byte) []byte {
	t.Helper()
	from := bytes.Index(line, []byte(`"at":`))
	require.GreaterOrEqual(t, from, 0)
	to := bytes.IndexByte(line[from:], '}')
	require.Positive(t, to)
	return line[from : from+to]
}

func fmtLine(t *testing.T, when time.Time) []byte {
	t.Helper()
	line := must.Get(json.Marshal(keptLine{At: when.Unix()}))(t)
	return line
}
