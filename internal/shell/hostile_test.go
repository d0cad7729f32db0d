package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fake is a hub that answers every POST with a job and follows it with events.
func fake(t *testing.T, files []File, events http.HandlerFunc) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hub/v1/submit", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id": "j", "status": "queued"}`)
	})
	if events == nil {
		events = func(w http.ResponseWriter, _ *http.Request) {
			list, err := json.Marshal(files)
			assert.NoError(t, err)
			_, _ = fmt.Fprintf(w, "event: done\ndata: {\"id\": \"j\", \"status\": \"completed\", \"result\": {\"files\": %s}}\n\n", list)
		}
	}
	mux.HandleFunc("GET /hub/v1/events/j", events)
	mux.HandleFunc("GET /view", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "evil") })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// names are file names by which a hub or a job would write where it must not.
var names = []File{
	{Filename: "../evil"},
	{Filename: ".."},
	{Filename: "."},
	{Filename: ""},
	{Filename: "/evil"},
	{Filename: `..\evil`},
	{Filename: "evil", Subfolder: ".."},
	{Filename: "evil", Subfolder: "a/../.."},
	{Filename: "evil", Subfolder: `a\..\..`},
	{Filename: ".bashrc"},
	{Filename: "authorized_keys", Subfolder: ".ssh"},
	{Filename: "a\nb"},
	{Filename: "a\x1b[2J"},
	{Filename: "C:evil"},
	{Filename: "evil", Subfolder: "out"}, // a link
	{Filename: strings.Repeat("x", 300)},
	{Filename: "evil", Subfolder: strings.Repeat("a/", 100)},
}

// Nothing is written outside the folder, whatever the files are called.
func TestNamesDoNotEscape(t *testing.T) {
	t.Parallel()
	for n := range names {
		names[n].Type = "output"
	}
	above := t.TempDir()
	folder := filepath.Join(above, "pictures")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.Symlink(above, filepath.Join(folder, "out")))
	for _, force := range []string{"--force=false", "--force"} {
		r := call(t, picture, "submit", "-", "--hub", fake(t, names, nil).URL, "--out", folder, force)
		require.Equal(t, ExitUnknown, r.code)
		require.Empty(t, r.out)
		require.Len(t, strings.Split(strings.TrimSpace(r.errors), "\n"), len(names)+2, r.errors)
		require.NotContains(t, r.errors, "\x1b")
	}
	for path, entries := range map[string]int{above: 1, folder: 1} {
		found, err := os.ReadDir(path)
		require.NoError(t, err)
		require.Len(t, found, entries)
	}
}

// A link in the place of a file is replaced at most, never followed.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	precious := filepath.Join(t.TempDir(), "precious")
	require.NoError(t, os.WriteFile(precious, []byte("mine"), 0o600))
	require.NoError(t, os.Symlink(precious, filepath.Join(folder, "a.png")))
	require.NoError(t, os.Symlink(precious, filepath.Join(folder, "a.png.part")))
	url := fake(t, []File{{Filename: "a.png", Type: "output"}}, nil).URL
	r := call(t, picture, "submit", "-", "--hub", url, "--out", folder)
	require.Equal(t, ExitUnknown, r.code)
	r = call(t, picture, "submit", "-", "--hub", url, "--out", folder, "--force")
	require.Equal(t, ExitDone, r.code, r.errors)
	data, err := os.ReadFile(precious)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
	data, err = os.ReadFile(filepath.Join(folder, "a.png"))
	require.NoError(t, err)
	require.Equal(t, "evil", string(data))
}

// Neither a redirect nor the URL of a file gets the login for another host.
func TestTheLoginStaysAtTheHub(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(other.Close)
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	folder := t.TempDir()
	r := call(t, picture, "submit", "-", "--hub", fake(t, []File{{Filename: "a", Type: "output", URL: other.URL}}, nil).URL, "--token-file", secret, "--out", folder)
	require.Equal(t, ExitDone, r.code, r.errors)
	redirecting := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(redirecting.Close)
	r = call(t, picture, "submit", "-", "--hub", redirecting.URL, "--token-file", secret)
	require.Equal(t, ExitFailed, r.code)
	require.Contains(t, r.errors, other.URL)
	require.Zero(t, asked.Load())
}

// Whoever names a ComfyUI server by mistake is told.
func TestPlainComfyUI(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "Python/3.11 aiohttp/3.12.15")
		http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
	}))
	t.Cleanup(plain.Close)
	r := call(t, picture, "submit", "-", "--hub", plain.URL)
	require.Equal(t, ExitFailed, r.code)
	require.Contains(t, r.errors, "this looks like ComfyUI, not a hub")
}

// The operator's own machine is asked where the hub's usual address has no hub, or one that does not
// know the job.
func TestWhoseJobItMayBe(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	_, refused := http.Get(gone.URL)
	require.Error(t, refused)
	for _, err := range []error{errNoJob, &Refusal{Status: http.StatusUnauthorized}, &Refusal{Status: http.StatusMethodNotAllowed}, refused} {
		require.True(t, mayBeOthers(err), err)
	}
	for _, err := range []error{nil, &Refusal{Status: http.StatusServiceUnavailable}, errID, &coded{ExitFailed, errShown}, context.Canceled} {
		require.False(t, mayBeOthers(err), err)
	}
}

// What a hub says writes nothing but text to a terminal.
func TestTerminalEscapes(t *testing.T) {
	t.Parallel()
	r := call(t, picture, "submit", "-", "--wait", "--hub", fake(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: {\"id\": \"\\u001b]0;x\\u0007\", \"status\": \"failed\", \"error\": \"\\u001b[2J\\u009b1m\\u202etxt\"}\n\n")
	}).URL)
	require.Equal(t, ExitFailed, r.code)
	require.NotContains(t, r.errors, "\x1b")
	require.NotContains(t, r.errors, "\u009b")
	require.NotContains(t, r.errors, "\u202e")
	require.Contains(t, r.errors, "txt")
}

// A stream that breaks, and a hub that restarts, cost nothing but time.
func TestFollowConnectsAgain(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	r := call(t, picture, "submit", "-", "--wait", "--hub", fake(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		switch tries.Add(1) {
		case 1:
			_, _ = io.WriteString(w, ":\n\nevent: queued\ndata: {\"id\": \"j\", \"status\": \"queued\", \"position\": 3}\n\n")
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			_, _ = io.WriteString(w, "data: {\"id\": \"j\",\ndata: \"status\": \"completed\"}\n\n")
		}
	}).URL)
	require.Equal(t, ExitDone, r.code, r.errors)
	require.Contains(t, r.errors, "queued, 3 before it")
	require.Equal(t, int32(4), tries.Load())
}

// A job whose answer is lost is sent again, with the same key.
func TestSubmitAgain(t *testing.T) {
	t.Parallel()
	var keys []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var order struct {
			Key string `json:"idempotency_key"`
		}
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&order))
		if keys = append(keys, order.Key); len(keys) < 3 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, `{"id": "j", "status": "queued"}`)
	}))
	t.Cleanup(server.Close)
	r := call(t, picture, "submit", "-", "--hub", server.URL)
	require.Equal(t, ExitDone, r.code, r.errors)
	require.Len(t, keys, 3)
	require.NotEmpty(t, keys[0])
	require.Equal(t, []string{keys[0], keys[0]}, keys[1:])
}

func FuzzPlace(f *testing.F) {
	for _, n := range names {
		f.Add(n.Filename, n.Subfolder)
	}
	f.Add("a.png", "b/c")
	f.Fuzz(func(t *testing.T, filename, subfolder string) {
		name, err := place(File{Filename: filename, Subfolder: subfolder})
		if err != nil {
			return
		}
		require.True(t, filepath.IsLocal(name), name)
		require.NotContains(t, "/"+name, "/.")
		require.Equal(t, filename, filepath.Base(name))
	})
}

func FuzzReadEvents(f *testing.F) {
	f.Add(":\n\nevent: x\ndata: {}\n\n")
	f.Add("data: a\ndata:b\n\ndata: cut")
	f.Fuzz(func(t *testing.T, text string) {
		total := 0
		_ = readEvents(strings.NewReader(text), func(data string) bool {
			total += len(data)
			return true
		})
		require.LessOrEqual(t, total, len(text))
	})
}
