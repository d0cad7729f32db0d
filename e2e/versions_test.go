package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

const (
	// otherVersion names a commit whose programs the tests build and run beside
	// those of this tree; or a folder, named like the commit, that already holds
	// them and that version's Caddyfile.
	otherVersion = "COMFYHUB_OTHER_VERSION"
	// tenantHeader says which tenant a request belongs to.
	tenantHeader = "X-ComfyHub-Tenant"
)

// other builds the programs of the other version. The test is skipped where none is
// named.
func other(t *testing.T) (set programs.Set, commit string) {
	t.Helper()
	ref := os.Getenv(otherVersion)
	if ref == "" || testing.Short() {
		t.Skip("builds and starts another version's programs: " + otherVersion + "=COMMIT")
	}
	if info, err := os.Stat(ref); err == nil && info.IsDir() {
		return programs.In(ref), filepath.Base(ref)
	}
	git := func(args ...string) string {
		out, err := exec.Command("git", args...).CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, out)
		return string(bytes.TrimSpace(out))
	}
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	git("worktree", "add", "--detach", tree, ref)
	defer git("worktree", "remove", "--force", tree)
	set = must.Get(programs.Build(tree, dir))(t)
	return set, git("rev-parse", "--short", ref)
}

// newPair gives two hubs, not started, on one Redis and one data folder, that
// take a request's tenant from its header, each with programs of its own.
func newPair(t *testing.T, server *redistest.Server, first, second programs.Set) (one, two *fleet) {
	t.Helper()
	url := "redis://" + server.Addr()
	one, two = fleetOf(t, first, url), fleetOf(t, second, url)
	two.Data = one.Data
	for _, f := range []*fleet{one, two} {
		f.Env = append(f.Env, "COMFYHUB_SITE=trust_tenant_from 127.0.0.1")
	}
	return one, two
}

// call sends a tenant's request.
func (f *fleet) call(tenant, method, path, kind string, body io.Reader) (status int, answer []byte) {
	f.t.Helper()
	status, answer, err := f.try(tenant, method, path, kind, body)
	require.NoError(f.t, err)
	return status, answer
}

// try is call for other goroutines than the test's own, which must not end it.
func (f *fleet) try(tenant, method, path, kind string, body io.Reader) (status int, answer []byte, err error) {
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.URL(path), body)
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set(tenantHeader, tenant)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// fetch is the body of a tenant's GET.
func (f *fleet) fetch(tenant, path string) []byte {
	f.t.Helper()
	status, answer := f.call(tenant, http.MethodGet, path, "", nil)
	require.Equal(f.t, http.StatusOK, status, "%s: %s", path, answer)
	return answer
}

// post sends JSON that must be accepted.
func (f *fleet) post(tenant, path, body string) {
	f.t.Helper()
	status, answer := f.call(tenant, http.MethodPost, path, "application/json", bytes.NewReader([]byte(body)))
	require.Equal(f.t, http.StatusOK, status, "%s: %s", path, answer)
}

// upload sends a picture.
func (f *fleet) upload(tenant, name string, picture image.Image) {
	f.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	require.NoError(f.t, png.Encode(must.Get(form.CreateFormFile("image", name))(f.t), picture))
	require.NoError(f.t, form.Close())
	status, answer := f.call(tenant, http.MethodPost, "/upload/image", form.FormDataContentType(), &body)
	require.Equal(f.t, http.StatusOK, status, "%s", answer)
}

// plain is a picture of one colour.
func plain(c color.Color) image.Image {
	picture := image.NewRGBA(image.Rect(0, 0, 16, 16))
	for n := range 16 * 16 {
		picture.Set(n%16, n/16, c)
	}
	return picture
}

// status is the state of a job as the hub reports it, "claimed" for one that
// runs and has not begun.
func (f *fleet) status(tenant, id string) string {
	var j struct {
		Status  string
		Started float64 `json:"started_at"`
	}
	status, answer, err := f.try(tenant, http.MethodGet, "/hub/jobs/"+id, "", nil)
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &j) != nil {
		return ""
	}
	if j.Status == "running" && j.Started == 0 {
		return "claimed"
	}
	return j.Status
}

// becomes waits for a state of a job.
func (f *fleet) becomes(tenant, id, status string) {
	f.t.Helper()
	f.eventually(func() bool { return f.status(tenant, id) == status }, fmt.Sprintf("%s is %s", id, status))
}

// listen opens a client's socket.
func (f *fleet) listen(tenant, client string) *websocket.Conn {
	f.t.Helper()
	conn, resp, err := websocket.Dial(f.t.Context(), f.URL("/ws?clientId="+client), &websocket.DialOptions{HTTPHeader: http.Header{tenantHeader: {tenant}}})
	require.NoError(f.t, err)
	if resp.Body != nil {
		resp.Body.Close()
	}
	conn.SetReadLimit(-1)
	f.t.Cleanup(func() { conn.CloseNow() })
	return conn
}

// hears reads messages until one of a prompt has a type, and gives the types of
// all of that prompt, "binary" for pictures of whatever prompt.
func (f *fleet) hears(conn *websocket.Conn, id, until string) (types []string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for {
		kind, frame, err := conn.Read(ctx)
		require.NoError(f.t, err, "after %v", types)
		if kind == websocket.MessageBinary {
			types = append(types, "binary")
			continue
		}
		var m struct {
			Type string
			Data struct {
				PromptID *string `json:"prompt_id"`
			}
		}
		require.NoError(f.t, json.Unmarshal(frame, &m))
		if m.Data.PromptID == nil || *m.Data.PromptID != id {
			continue
		}
		if types = append(types, m.Type); m.Type == until {
			return types
		}
	}
}
