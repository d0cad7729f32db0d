package hub_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// loadCalls are the requests that ComfyUI's web UI 1.27 and 1.49 sends while it loads, as recorded
// with Chromium, and those of its open side bar, each with the kind of value that it reads.
var loadCalls = map[string]byte{
	"/api/extensions": '[', "/api/i18n": '{', "/api/object_info": '{', "/api/system_stats": '{', "/api/users": '{', "/api/settings": '{',
	"/api/features": '{', "/api/workflow_templates": '{', "/api/global_subgraphs": '{', "/api/global_subgraphs/00045d7f": 'n',
	"/api/node_replacements": '{', "/api/experiment/models": '[', "/api/experiment/models/loras": '[', "/api/embeddings": '[', "/api/models": '[',
	"/api/models/loras": '[', "/api/queue": '{', "/api/history?max_items=64": '{', "/api/prompt": '{',
	"/api/jobs?status=in_progress,pending&limit=200&offset=0": '{', "/api/jobs?status=completed,failed,cancelled&limit=64&offset=0": '{',
	"/internal/folder_paths": '{', "/internal/logs": '"', "/internal/logs/raw": '{', "/internal/files/input": '[', "/internal/files/output": '[',
}

// A web UI that the hub has a copy of loads without any instance: each call gets
// an answer of the right kind, and the build's own extensions are there.
func TestLoadCallsWithoutAnInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		folder := t.TempDir()
		for name, body := range map[string]string{"index.html": "<html>", "extensions/core/x.js": "core()"} {
			full := filepath.Join(folder, filepath.FromSlash(name))
			require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
			require.NoError(t, os.WriteFile(full, []byte(body), 0o600))
		}
		b := newBench(t, 0, func(b *bench) { b.settings.Frontend = folder })
		for path, kind := range loadCalls {
			body := b.gets(path)
			require.True(t, json.Valid(body), path)
			require.Equal(t, string(kind), string(body[0]), path)
		}
		require.Equal(t, "core()", b.text("/extensions/core/x.js"))
	})
}

// The hub repeats the last answers of instances while none of them is there, even
// after a restart of its process.
func TestLastKnownAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		answers := map[string]string{
			"/extensions": `["/extensions/core/x.js", "/extensions/pack/y.js"]`, "/i18n": `{"ru": {}}`,
			"/workflow_templates": `{"pack": ["one"]}`, "/global_subgraphs": `{"abc": {"name": "x"}}`, "/global_subgraphs/abc": `{"data": "{}"}`,
			"/node_replacements": `{}`, "/models": `["loras"]`, "/models/loras": `["a.safetensors"]`, "/embeddings": `["e"]`,
			"/experiment/models": `[{"name": "loras", "folders": ["/x"]}]`, "/experiment/models/loras": `[{"name": "a.safetensors", "pathIndex": 0}]`,
			"/internal/folder_paths": `{"loras": ["/x"]}`,
		}
		var dying atomic.Bool
		var subgraphs atomic.Int32
		front := simtest.Front(t, newInstance(t, sim.Config{}).url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
			answer, ok := answers[r.URL.Path]
			if strings.HasPrefix(r.URL.Path, "/global_subgraphs/") {
				subgraphs.Add(1)
			}
			switch {
			case ok && dying.Load():
				// In the middle of the answer, while its socket is still open.
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", "1000")
				_, _ = w.Write([]byte(answer)[:1])
				panic(http.ErrAbortHandler)
			case ok:
				w.Header().Set("Content-Type", "application/json; charset=utf-8")
				_, _ = w.Write([]byte(answer))
			default:
				rest.ServeHTTP(w, r)
			}
		})
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{front.URL} })
		check := func(when string) {
			t.Helper()
			for path, want := range answers {
				for _, prefix := range []string{"", "/api"} {
					if strings.HasPrefix(path, "/internal") {
						prefix = ""
					}
					require.JSONEq(t, want, b.text(prefix+path), "%s: %s", when, path)
				}
			}
		}
		check("connected")
		_, _, scripts := b.ask(http.MethodGet, "/extensions", "", http.Header{"Comfy-User": {""}})
		require.JSONEq(t, `["/extensions/core/x.js", "/extensions/pack/y.js", "/extensions/comfyhub/panel.js"]`, scripts, "a page has the hub's too")
		require.EqualValues(t, 1, subgraphs.Load(), "a page asks for a hundred")
		for range 2 { // anybody can make up ids, so they are not kept
			require.Equal(t, "null", b.text("/api/global_subgraphs/made-up"))
		}
		require.EqualValues(t, 3, subgraphs.Load())
		_, kept := b.hub.LastKnown.Last(t.Context(), "/global_subgraphs/made-up", func(string) bool { return true })
		require.False(t, kept)
		_, classes := b.get("/object_info")
		dying.Store(true)
		check("dying")

		b.stop()
		front.CloseClientConnections()
		front.Close()
		b.start()
		check("after a restart")
		require.JSONEq(t, string(classes), b.text("/object_info"))
		b.gets("/object_info/KSampler")

		// One that the operator has thrown out does not go on speaking.
		b.settings.Instances = nil
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		require.Equal(t, "[]", b.text("/extensions"))
		require.Equal(t, "{}", b.text("/i18n"))
		require.JSONEq(t, answers["/models"], b.text("/models"), "made of the answers of many")
	})
}

// Without a web UI the page says so in the visitor's language, and checks again.
func TestWaitingPage(t *testing.T) {
	inBench(t, benchOf(0), func(t *testing.T, b *bench) {
		browser := func(path, language string) (*http.Response, string) {
			resp := b.send(exchange{method: "GET", path: path, header: map[string]string{"Accept": "text/html,*/*;q=0.8", "Accept-Language": language}})
			_, body := read(t, resp)
			return resp, string(body)
		}
		for language, want := range map[string]string{
			"": "en", "en-GB,en;q=0.9": "en", "ru-RU,ru;q=0.9,en;q=0.8": "ru", "en,ru;q=0.5": "en", "de, ru;q=0.7, en;q=0.3": "ru", "de": "en", "RU": "ru", "ru;q=x, en": "en", "ru;q=0, en;q=0.1": "en", "uk,en;q=0.5": "en", "ru-Cyrl-UA": "ru", "*": "en",
		} {
			for _, path := range []string{"/", "/index.html", "/api/"} {
				resp, body := browser(path, language)
				require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				require.Equal(t, want, resp.Header.Get("Content-Language"), language)
				require.Equal(t, "3", resp.Header.Get("Retry-After"))
				require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
				require.Contains(t, body, `http-equiv="refresh" content="3"`)
				require.Contains(t, body, `lang="`+want+`"`)
			}
		}
		require.NotContains(t, string(answered(b.get("/"))(t, http.StatusServiceUnavailable)), "<")
		require.Equal(t, http.StatusNotFound, statusOf(b.get("/assets/plain.js")))

		// An instance that has just died, before the hub has noticed.
		var dead atomic.Bool
		front := fronted(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if dead.Load() {
				panic(http.ErrAbortHandler)
			}
			_, _ = w.Write([]byte("<html>comfy"))
		}))
		b.settings.Instances = []string{front.URL}
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		eventually(t, func() bool { _, body := browser("/", "en"); return body == "<html>comfy" }, time.Minute, 10*time.Millisecond)
		dead.Store(true)
		resp, text := browser("/", "ru")
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Contains(t, text, `lang="ru"`)
	})
}

// An instance dies while a page loads: the browser has the page and waits for its
// scripts. They come from another instance, or from the same one once it is back.
func TestInstanceDiesInMidLoad(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const kept, script, other = "/assets/kept-BZZQdWHo.js", "/assets/index-vtow2bzT.js", "/assets/other-G-74P12b.js"
		var dead atomic.Bool
		asked := make(chan struct{}, 1000)
		front := fronted(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			switch {
			case dead.Load():
				panic(http.ErrAbortHandler)
			case r.URL.Path == script, r.URL.Path == kept:
				w.Header().Set("Content-Type", "application/javascript")
				_, _ = w.Write([]byte("one()"))
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{front.URL} })
		require.Equal(t, "one()", b.text(kept))
		dead.Store(true)
		require.Equal(t, "one()", b.text(kept), "the hub has it")
		for len(asked) > 0 {
			<-asked
		}
		answers := make(chan string, 1)
		go func() {
			resp, err := http.Get(b.web.URL + script)
			if err != nil {
				answers <- err.Error()
				return
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			answers <- resp.Header.Get("Cache-Control") + " " + string(text)
		}()
		<-asked // the proxy has failed or is about to fail
		<-asked
		require.Empty(t, answers, "it waits")
		dead.Store(false)
		require.Equal(t, "public, max-age=31536000, immutable one()", <-answers)
		require.Equal(t, http.StatusNotFound, statusOf(b.get(other)))
		eventually(t, func() bool { return b.rooms.ComfyUI.AwaitingBuild() == 0 }, time.Minute, time.Millisecond)
	})
}
