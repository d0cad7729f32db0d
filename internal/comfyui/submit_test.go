package comfyui

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestSubmit(t *testing.T) {
	t.Parallel()
	reply := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			got, _ := io.ReadAll(r.Body)
			if r.Method != http.MethodPost || r.URL.Path != "/prompt" || string(got) != `{"seed": 18446744073709551615}` {
				status, body = 599, "odd request"
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	cut := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		check func(*testing.T, Reply, error)
	}{
		"accepted": {reply(200, `{"prompt_id": "p", "number": NaN, "node_errors": {"1": {}}}`), func(t *testing.T, r Reply, err error) {
			require.NoError(t, err)
			require.Equal(t, Reply{PromptID: "p", Number: "NaN", NodeErrors: []byte(`{"1": {}}`)}, r)
		}},
		"refused": {reply(400, `{"error": {"type": "value_not_in_list", "message": "No \u00e9", "details": "d", "extra_info": {}}, "node_errors": {"1": {"errors": []}}}`), func(t *testing.T, _ Reply, err error) {
			var refused *Refused
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "value_not_in_list", refused.Type)
			require.Equal(t, "No é", refused.Message)
			require.Equal(t, "d", refused.Details)
			require.Equal(t, `{"1": {"errors": []}}`, string(refused.NodeErrors))
		}},
		"refused by an old server": {reply(400, `{"error":"no prompt","node_errors":[]}`), func(t *testing.T, _ Reply, err error) {
			var refused *Refused
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "no prompt", refused.Message)
			require.Equal(t, "[]", string(refused.NodeErrors))
		}},
		"refused in plain text": {reply(400, "bad thing"), func(t *testing.T, _ Reply, err error) {
			var refused *Refused
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "bad thing", refused.Message)
		}},
		"server error": {reply(500, "Server got itself in trouble"), func(t *testing.T, _ Reply, err error) {
			require.ErrorIs(t, err, ErrUnclear)
			require.NotErrorIs(t, err, ErrUnreachable)
		}},
		"cut": {cut, func(t *testing.T, _ Reply, err error) { require.ErrorIs(t, err, ErrUnclear) }},
		"accepted in another language": {reply(200, `<html>`), func(t *testing.T, _ Reply, err error) {
			require.ErrorIs(t, err, ErrUnclear)
		}},
		"too large": {reply(413, "Maximum request body size"), func(t *testing.T, _ Reply, err error) {
			var status *StatusError
			require.ErrorAs(t, err, &status)
			require.Equal(t, 413, status.Status)
		}},
		"login page": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, func(t *testing.T, _ Reply, err error) {
			var status *StatusError
			require.ErrorAs(t, err, &status)
			require.Equal(t, 302, status.Status)
		}},
		"hub": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(HubHeader, "1.0")
			fmt.Fprint(w, `{"prompt_id": "p"}`)
		}, func(t *testing.T, _ Reply, err error) { require.ErrorIs(t, err, ErrHub) }},
		"dead behind its agent": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(UnreachableHeader, Gone)
			w.WriteHeader(502)
		}, func(t *testing.T, _ Reply, err error) { require.ErrorIs(t, err, ErrGone) }},
		"out of reach of its agent": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(UnreachableHeader, "cannot connect")
			w.WriteHeader(502)
		}, func(t *testing.T, _ Reply, err error) {
			require.ErrorIs(t, err, ErrUnreachable)
			require.NotErrorIs(t, err, ErrGone)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.serve)
			defer server.Close()
			r, err := newTestClient(t, server.URL).Submit(t.Context(), []byte(`{"seed": 18446744073709551615}`))
			c.check(t, r, err)
		})
	}
}

func TestSubmitRefusedPort(t *testing.T) {
	t.Parallel()
	url := refusedURL(t)
	_, err := newTestClient(t, url).Submit(t.Context(), nil)
	require.ErrorIs(t, err, ErrGone)
	require.ErrorIs(t, err, ErrUnreachable)

	agent := must.Get(NewClient(url, Options{ViaAgent: true}))(t)
	_, err = agent.Submit(t.Context(), nil)
	require.ErrorIs(t, err, ErrUnreachable)
	require.NotErrorIs(t, err, ErrGone, "the agent is away; its instance may live")
}

// A kept connection that has died is no sign that anything was sent.
func TestSubmitAfterTheServerDied(t *testing.T) {
	f := newFakeServer(t)
	c := newTestClient(t, f.URL)
	for range 20 {
		must.Get(c.QueueRemaining(t.Context()))(t)
	}
	f.stop()
	require.Eventually(t, func() bool {
		_, err := c.Submit(t.Context(), []byte("{}"))
		return errors.Is(err, ErrGone)
	}, time.Minute, time.Millisecond)
}

func TestSubmitTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	c := must.Get(NewClient(server.URL, Options{HeaderTimeout: 50 * time.Millisecond}))(t)
	defer c.Close()
	_, err := c.Submit(t.Context(), []byte("{}"))
	require.ErrorIs(t, err, ErrUnclear, "it may have been queued")
}

func put(t *testing.T, path ...string) string {
	t.Helper()
	full := filepath.Join(path...)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(t, os.WriteFile(full, nil, 0o644))
	return full
}

// A file that comes or goes in a model folder is told at once, also by a server
// that is never idle.
func TestWatchLooksAtModelFolders(t *testing.T) {
	t.Parallel()
	server := must.Get(sim.New(sim.Config{Dir: t.TempDir()}))(t)
	web := httptest.NewServer(server.Handler())
	t.Cleanup(func() { server.Close(); web.Close() })
	w := startWatch(t, web.URL, WatchOptions{Folders: true, FoldersEvery: 5 * time.Millisecond, ObjectInfoEvery: time.Hour})
	w.await(t, "up", func(o Observation) bool { return o.Idle() && o.ObjectInfoHash != "" })
	c := newTestClient(t, web.URL)
	must.Get(c.Submit(t.Context(), []byte(`{"prompt": {
		"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 1}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 3600, "steps": 10}},
		"3": {"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}}}}`)))(t)
	w.await(t, "busy", func(o Observation) bool { return o.Up && !o.Idle() })
	hashes := map[string]bool{w.last().ObjectInfoHash: true}
	var last string
	next := func(what string) {
		w.await(t, what, func(o Observation) bool { return !hashes[o.ObjectInfoHash] })
		last = w.last().ObjectInfoHash
		hashes[last] = true
		require.False(t, w.last().Idle())
	}
	models := filepath.Join(server.Dir(), "models")
	first := put(t, models, "loras", "a.safetensors")
	next("a new folder with a file")
	put(t, models, "loras", "sub", "deep", "b.safetensors")
	next("new folders below")
	put(t, models, "loras", "sub", "deep", "c.safetensors")
	next("a file in one of them")
	require.NoError(t, os.Remove(first))
	next("a file has gone")
}

func TestFolderWatchIsBounded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, "loras", "sub", "a.pt")
	put(t, root, "loras", ".git", "b.pt")
	require.NoError(t, os.Symlink(root, filepath.Join(root, "loras", "sub", "circle")))
	other := t.TempDir()
	require.NoError(t, os.Symlink(other, filepath.Join(root, "loras", "linked")))
	f := newFolderWatch(nil, time.Second)
	f.places = []string{filepath.Join(root, "loras"), filepath.Join(root, "loras"), filepath.Join(root, "nowhere")}
	f.asked = time.Now()
	require.True(t, f.look(), "all is new")
	require.False(t, f.look(), "nothing has changed")
	require.Less(t, len(f.seen), 5*maxFolderDepth, "a circle ends")
	require.NotContains(t, f.seen, filepath.Join(root, "loras", ".git"))
	put(t, other, "new.pt")
	require.True(t, f.look(), "a link is followed")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "loras")))
	require.True(t, f.look(), "a folder has gone")
	require.Empty(t, f.seen)
	require.False(t, f.look())
}

func FuzzParsePlaces(f *testing.F) {
	f.Add([]byte(`[{"name": "loras", "folders": ["/models/loras", "relative", 3]}]`))
	f.Add([]byte(`{"name": NaN}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, place := range parsePlaces(body) {
			require.True(t, filepath.IsAbs(place))
		}
		require.LessOrEqual(t, len(parsePlaces(must.Get(json.Marshal([]any{map[string]any{"folders": []string{string(body)}}}))(t))), 1)
	})
}

func TestProxy(t *testing.T) {
	f := newFakeServer(t)
	seen := make(chan *http.Request, 1)
	f.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/ws" {
			return r.Header.Get("Origin") != ""
		}
		seen <- r
		fmt.Fprint(w, "answer")
		return true
	})
	instance := newTestClient(t, f.URL)
	agent := httptest.NewServer(http.StripPrefix("/i/gpu", instance.Proxy()))
	defer agent.Close()

	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, agent.URL+"/i/gpu/userdata/workflows%2Fa.json?x=%20y", strings.NewReader("body")))(t)
	req.Header.Set("Origin", "http://evil")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	req.Header.Set("Sec-Fetch-Dest", "image")
	resp := must.Get(agent.Client().Do(req))(t)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	require.Equal(t, "answer", string(body))
	r := <-seen
	require.Equal(t, "/userdata/workflows%2Fa.json?x=%20y", r.RequestURI)
	require.Empty(t, r.Header.Get("Origin"))
	require.Empty(t, r.Header.Get("Sec-Fetch-Site"))
	require.Equal(t, "image", r.Header.Get("Sec-Fetch-Dest"))
	require.Equal(t, strings.TrimPrefix(f.URL, "http://"), r.Host)

	through := newTestClient(t, agent.URL+"/i/gpu")
	socket := must.Get(through.Dial(t.Context(), "sid"))(t)
	must.Get(socket.Next(t.Context()))(t)
	socket.Close()

	f.stop()
	// The first prompt may still go over an open connection: then nobody knows its fate.
	require.Eventually(t, func() bool {
		_, err = through.Submit(t.Context(), []byte("{}"))
		return errors.Is(err, ErrGone)
	}, time.Minute, time.Millisecond, "the agent says that the instance's port refuses")
	_, err = through.Dial(t.Context(), "sid")
	require.ErrorIs(t, err, ErrGone)
}
