package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// newTidier deletes from a folder from now on.
func newTidier(t *testing.T, folder string) *tidier {
	t.Helper()
	list := must.Get(openKept(filepath.Join(t.TempDir(), "box.kept"), folder))(t)
	return &tidier{folder: folder, age: time.Hour, list: list, log: discard()}
}

// write writes a file and returns what a hub that has copied it says.
func write(t *testing.T, folder, name, content string) comfyui.KeptFile {
	t.Helper()
	path := filepath.Join(folder, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return keeps(t, folder, name)
}

// keeps is what a hub says that has copied a file.
func keeps(t *testing.T, folder, name string) comfyui.KeptFile {
	t.Helper()
	path := filepath.Join(folder, filepath.FromSlash(name))
	info := must.Get(os.Stat(path))(t)
	text := must.Get(os.ReadFile(path))(t)
	hash := sha256.Sum256(text)
	sub, file := "", name
	if at := strings.LastIndex(name, "/"); at >= 0 {
		sub, file = name[:at], name[at+1:]
	}
	return comfyui.KeptFile{
		Subfolder: sub, Filename: file, SHA256: hex.EncodeToString(hash[:]),
		ETag: fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()),
	}
}

func exists(folder, name string) bool {
	_, err := os.Lstat(filepath.Join(folder, filepath.FromSlash(name)))
	return err == nil
}

func TestTidy(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	x := newTidier(t, folder)
	require.NoError(t, x.take([]comfyui.KeptFile{write(t, folder, "a_00001_.png", "a"), write(t, folder, "sub/b.png", "b")}))
	write(t, folder, "mine.png", "nobody has told the hub")
	require.Zero(t, x.sweep(t.Context(), time.Now()), "too young")
	require.Equal(t, 2, x.sweep(t.Context(), time.Now().Add(2*time.Hour)))
	require.False(t, exists(folder, "a_00001_.png"))
	require.False(t, exists(folder, "sub/b.png"))
	require.True(t, exists(folder, "mine.png"))
	require.True(t, exists(folder, "sub"))
	require.Zero(t, x.sweep(t.Context(), time.Now().Add(2*time.Hour)))
}

// Whatever a hub says, an agent deletes nothing but unchanged outputs that the hub has read.
func TestTidyLeavesAlone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no symbolic links for everybody")
	}
	folder, outside := t.TempDir(), t.TempDir()
	before := write(t, folder, "before.png", "from before the agent")
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(folder, "before.png"), old, old))
	before = keeps(t, folder, before.Filename)
	x := newTidier(t, folder)
	secret := write(t, outside, "secret.txt", "secret")
	absolute := secret
	absolute.Subfolder = outside
	up := secret
	up.Subfolder = "../" + filepath.Base(outside)
	upName := secret
	upName.Filename = "../" + filepath.Base(outside) + "/secret.txt"
	backslash := secret
	backslash.Filename = `..\` + filepath.Base(outside) + `\secret.txt`
	require.NoError(t, os.Symlink(outside, filepath.Join(folder, "link")))
	byFolder := secret
	byFolder.Subfolder = "link"
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret.txt"), filepath.Join(folder, "link.txt")))
	byFile := secret
	byFile.Filename = "link.txt"
	inside := write(t, folder, "real/c.png", "c")
	require.NoError(t, os.Symlink(filepath.Join(folder, "real"), filepath.Join(folder, "alias")))
	byAlias := inside
	byAlias.Subfolder = "alias"
	changed := write(t, folder, "changed.png", "1")
	require.NoError(t, os.Chtimes(filepath.Join(folder, "changed.png"), time.Now(), time.Now().Add(time.Second)))
	another := write(t, folder, "another.png", "what it is")
	another.SHA256 = secret.SHA256
	require.NoError(t, os.Mkdir(filepath.Join(folder, "dir"), 0o700))
	dir := inside
	dir.Subfolder, dir.Filename = "", "dir"
	self := inside
	self.Subfolder, self.Filename = "", "."
	noHash, noTime := inside, inside
	noHash.SHA256, noTime.ETag = "", ""
	none := inside
	none.Filename = "none.png"
	all := []comfyui.KeptFile{before, absolute, up, upName, backslash, byFolder, byFile, byAlias, changed, another, dir, self, noHash, noTime, none, {}}
	require.NoError(t, x.take(all))
	require.Zero(t, x.sweep(t.Context(), time.Now().Add(2*time.Hour)))
	for _, name := range []string{"before.png", "link", "link.txt", "real/c.png", "alias", "changed.png", "another.png", "dir"} {
		require.True(t, exists(folder, name), name)
	}
	require.True(t, exists(outside, "secret.txt"))
	require.Empty(t, x.list.due(time.Now().Add(time.Hour)), "none is tried again")
}

// What the hub has said outlives the agent, even one that was cut off in a line.
func TestKeptListLasts(t *testing.T) {
	t.Parallel()
	folder, path := t.TempDir(), filepath.Join(t.TempDir(), "box.kept")
	open := func() *tidier {
		list := must.Get(openKept(path, folder))(t)
		return &tidier{folder: folder, age: time.Hour, list: list, log: discard()}
	}
	x := open()
	begun := x.list.begun
	require.NoError(t, x.take([]comfyui.KeptFile{write(t, folder, "a.png", "a"), write(t, folder, "b.png", "b")}))
	text := must.Get(os.ReadFile(path))(t)
	require.NoError(t, os.WriteFile(path, text[:len(text)-5], 0o600))
	x = open()
	require.Equal(t, begun, x.list.begun)
	require.Equal(t, 1, x.sweep(t.Context(), time.Now().Add(2*time.Hour)))
	require.False(t, exists(folder, "a.png"))
	require.True(t, exists(folder, "b.png"), "its line was lost")
	x = open()
	require.Empty(t, x.list.files, "what is deleted is forgotten")

	// Another folder starts with an empty list: what is in it is from before.
	require.Greater(t, must.Get(openKept(path, t.TempDir()))(t).begun, begun)
}

func TestKeptListIsBounded(t *testing.T) {
	t.Parallel()
	list := must.Get(openKept(filepath.Join(t.TempDir(), "box.kept"), "/out"))(t)
	for n := range maxKeptFiles {
		list.files[fmt.Sprint(n)] = keptFile{Name: fmt.Sprint(n)}
	}
	require.NoError(t, list.add([]keptFile{{Name: "one more"}}))
	require.Len(t, list.files, maxKeptFiles)
}

func TestServeKept(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	a := newAgent(config{machine: machine{outputAge: time.Hour}, state: t.TempDir(), logger: discard()})
	require.NoError(t, a.add(target{name: "box", url: "http://127.0.0.1:1", output: folder}))
	require.NoError(t, a.add(target{name: "other", url: "http://127.0.0.1:2"}))
	server := httptest.NewServer(http.HandlerFunc(a.door.serveHTTP))
	defer server.Close()
	client := func(name string) *comfyui.Client {
		c := must.Get(comfyui.NewClient(server.URL+comfyui.InstancePath+name, comfyui.Options{ViaAgent: true}))(t)
		t.Cleanup(c.Close)
		return c
	}
	f := write(t, folder, "a.png", "a")
	require.NoError(t, client("box").Kept(t.Context(), []comfyui.KeptFile{f}))
	require.ErrorContains(t, client("other").Kept(t.Context(), []comfyui.KeptFile{f}), "--output-dir")
	require.Error(t, client("nobody").Kept(t.Context(), []comfyui.KeptFile{f}))
	require.Error(t, client("box").Kept(t.Context(), make([]comfyui.KeptFile, comfyui.MaxKept+1)))
	i := a.servers.find("box")
	require.Equal(t, 1, i.tidier.sweep(t.Context(), time.Now().Add(2*time.Hour)))
	for _, request := range []struct {
		method, body string
		status       int
	}{{http.MethodGet, "", http.StatusMethodNotAllowed}, {http.MethodPost, "{", http.StatusBadRequest}, {http.MethodPost, strings.Repeat(" ", maxKeptBody+1), http.StatusBadRequest}} {
		r := must.Get(http.NewRequestWithContext(t.Context(), request.method, server.URL+comfyui.KeptPath+"box", strings.NewReader(request.body)))(t)
		resp := must.Get(http.DefaultClient.Do(r))(t)
		require.Equal(t, request.status, resp.StatusCode)
		resp.Body.Close()
	}
}

func TestOutputFolders(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for text, c := range map[string]machine{
		"":                                {outputs: []string{folder}, outputAge: time.Hour},
		"one for each":                    {outputs: []string{folder, folder}, outputAge: time.Hour},
		"want at least":                   {outputs: []string{folder}, outputAge: time.Second},
		"not a folder":                    {outputs: []string{file}, outputAge: time.Hour},
		"no such file":                    {outputs: []string{filepath.Join(folder, "none")}, outputAge: time.Hour},
		"whole disk is not an output fol": {outputs: []string{filepath.VolumeName(folder) + string(filepath.Separator)}, outputAge: time.Hour},
	} {
		list := make([]target, 2) // the second one is of A1111
		err := c.place(list, 1)
		if text == "" {
			require.NoError(t, err)
			require.Equal(t, folder, list[0].output)
			require.Empty(t, list[1].output)
			continue
		}
		require.ErrorContains(t, err, text)
	}
}

func FuzzValidKept(f *testing.F) {
	f.Add("sub", "a.png", `"17e1b0c0-1"`, strings.Repeat("a", 64))
	f.Add("../x", "..", `"-1--1"`, "")
	folder := f.TempDir()
	list := must.Get(openKept(filepath.Join(f.TempDir(), "box.kept"), folder))(f)
	list.begun = 0
	x := &tidier{folder: folder, list: list, log: discard()}
	f.Fuzz(func(t *testing.T, sub, name, etag, hash string) {
		k, ok := x.valid(comfyui.KeptFile{Subfolder: sub, Filename: name, ETag: etag, SHA256: hash})
		if ok {
			require.True(t, filepath.IsLocal(filepath.FromSlash(k.Name)), k.Name)
			require.Len(t, k.SHA256, 64)
			require.Positive(t, k.Written)
		}
	})
}
