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
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
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

// A hub of another version and one of this version share a Redis, as during an
// upgrade, each with an instance of its own. Each answers for the other as well:
// where a job waits, runs and ends, its pictures, its cancels, and what clients
// hear over sockets at either.
func TestTwoVersionsShareARedis(t *testing.T) {
	set, _ := other(t)
	older, newer := newPair(t, redistest.Start(t), set, programstest.Built(t))
	for name, f := range map[string]*fleet{"older": older, "newer": newer} {
		f.startHub()
		f.startAgent(name, 1)
		f.idle(1)
	}
	whole := t
	for turn, hubs := range map[string][2]*fleet{"older first": {older, newer}, "newer first": {newer, older}} {
		at, beside := hubs[0], hubs[1]
		t.Run(turn, func(t *testing.T) {
			older.t, newer.t = t, t
			defer func() { older.t, newer.t = whole, whole }()
			id := func() string { return uuid.NewString() }
			client := id()

			// Uploaded and posted here, heard and read there, each in its turn:
			// whichever instance takes it.
			at.upload("ann", "photo.png", plain(color.RGBA{R: 9, G: 99, B: 199, A: 255}))
			require.NotEmpty(t, beside.fetch("ann", "/view?filename=photo.png&type=input"))
			socket := beside.listen("ann", client)
			for n, f := range []*fleet{at, beside, at, beside} {
				done := id()
				work := takes(1, "none", int(rand.Int32()))
				source := blank
				if n%2 > 0 {
					source = photo
				}
				f.post("ann", "/prompt", prompted(done, client, source, work))
				types := at.hears(socket, done, "execution_success")
				require.Equal(t, "execution_start", types[0])
				require.Contains(t, types, "progress")
				for _, f := range hubs {
					f.becomes("ann", done, "done")
					require.NotEmpty(t, f.fetch("ann", f.view("ann", done)))
					status, _ := f.call("bob", "GET", f.view("ann", done), "", nil)
					require.Equal(t, 404, status, "it is ann's")
				}
				require.JSONEq(t, string(at.fetch("ann", "/history/"+done)), string(beside.fetch("ann", "/history/"+done)))
			}

			// What is too large for one message between hubs.
			noise := image.NewRGBA(image.Rect(0, 0, 512, 512))
			for n := range noise.Pix {
				noise.Pix[n] = uint8(rand.Uint32()) | uint8(n%4/3*255) // opaque
			}
			at.upload("ann", "noise.png", noise)
			large := id()
			at.post("ann", "/prompt", fmt.Sprintf(`{"prompt_id": %q, "client_id": %q, "prompt": {
				"1": {"class_type": "LoadImage", "inputs": {"image": "noise.png"}},
				"3": {"class_type": "SaveImageWebsocket", "inputs": {"images": ["1", 0]}}}}`, large, client))
			require.Contains(t, at.hears(socket, large, "execution_success"), "binary")

			// Both instances work for ever, a third job waits; each is cancelled at
			// the hub that it was not posted at.
			running, waiting := []string{id(), id()}, id()
			for n, f := range hubs {
				f.post("ann", "/prompt", prompted(running[n], client, blank, takes(3600, "none", int(rand.Int32()))))
				f.becomes("ann", running[n], "running")
			}
			at.post("ann", "/prompt", prompted(waiting, client, blank, invert))
			for _, f := range hubs {
				require.ElementsMatch(t, append(running, waiting), f.queued("ann"))
			}
			beside.post("ann", "/queue", fmt.Sprintf(`{"delete": [%q]}`, waiting))
			beside.post("ann", "/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, running[0]))
			at.post("ann", "/hub/jobs/"+running[1]+"/cancel", "")
			for _, f := range hubs {
				for _, stopped := range append(running, waiting) {
					f.becomes("ann", stopped, "cancelled")
				}
				require.Empty(t, f.queued("ann"))
			}

			// The client comes back at the other hub and hears what it has missed.
			_ = socket.CloseNow()
			missed := id()
			beside.post("ann", "/prompt", prompted(missed, client, blank, invert))
			beside.becomes("ann", missed, "done")
			back := at.listen("ann", client)
			require.Equal(t, "execution_start", at.hears(back, missed, "execution_success")[0])
			at.post("ann", "/history", fmt.Sprintf(`{"delete": [%q]}`, missed))
			require.JSONEq(t, `{}`, string(beside.fetch("ann", "/history/"+missed)))
		})
	}

	// The older hub is stopped during a run: the newer one gets its job done.
	job := uuid.NewString()
	older.post("ann", "/prompt", prompted(job, "ann", blank, takes(3600, "none", int(rand.Int32()))))
	older.becomes("ann", job, "running")
	older.Hub.Kill()
	require.Equal(t, []string{job}, newer.queued("ann"))
	newer.post("ann", "/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, job))
	newer.becomes("ann", job, "cancelled")
}
