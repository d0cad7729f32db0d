package hub_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/stream"
)

func TestFrontend(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		folder := t.TempDir()
		outside := filepath.Join(t.TempDir(), "secret.txt")
		require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o600))
		require.NoError(t, os.Symlink(outside, filepath.Join(folder, "link.txt")))
		for name, body := range map[string]string{
			"index.html": "<html>ours</html>", "assets/app-1a2b.js": "js", "assets/a.css": "css", "assets/logo.PNG": "png",
			"extensions/core/x.js": "not this one", "templates/index.json": "nor this",
		} {
			full := filepath.Join(folder, filepath.FromSlash(name))
			require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
			require.NoError(t, os.WriteFile(full, []byte(body), 0o600))
		}
		p := newPack(t, "primary", sim.Config{Version: "0.33.0"})
		b := newBench(t, 0, func(b *bench) { b.settings.Frontend, b.settings.Instances = folder, []string{p.URL} })
		for _, c := range []struct{ path, body, kind, control string }{
			{"/", "<html>ours</html>", "text/html", "no-store, must-revalidate"},
			{"/?x=1", "<html>ours</html>", "text/html", "no-store, must-revalidate"},
			{"/api/", "<html>ours</html>", "text/html", "no-store, must-revalidate"},
			{"/index.html", "<html>ours</html>", "text/html", ""},
			{"/assets/app-1a2b.js", "js", "application/javascript", "no-store"},
			{"/assets/a.css", "css", "text/css", "no-store"},
			{"/assets/logo.PNG", "png", "image/png", "public, max-age=86400"},
		} {
			resp := b.send(exchange{method: "GET", path: c.path})
			status, body := read(t, resp)
			require.Equal(t, http.StatusOK, status, c.path)
			require.Equal(t, c.body, string(body), c.path)
			require.Equal(t, c.kind, resp.Header.Get("Content-Type"), c.path)
			require.Equal(t, c.control, resp.Header.Get("Cache-Control"), c.path)
			again := b.send(exchange{method: "GET", path: c.path, header: map[string]string{"If-None-Match": resp.Header.Get("Etag")}})
			require.Equal(t, http.StatusNotModified, statusOf(read(t, again)), c.path)
		}
		for path, want := range map[string]int{"/link.txt": 404, "/assets": 404, "/assets/": 404, "/nope.js": 404, "/extensions/core/x.js": 418} {
			status, body := b.get(path)
			require.Equal(t, want, status, path)
			require.NotContains(t, string(body), "secret")
		}
		require.Equal(t, http.StatusMethodNotAllowed, statusOf(b.post("/assets/a.css", "x")))

		err := b.hub.Start(t.Context(), config.Settings{Frontend: t.TempDir()})
		require.ErrorContains(t, err, "index.html")
		require.Equal(t, "<html>ours</html>", b.text("/"), "a bad reload changes nothing")
	})
}

// A web interface newer than the instances asks for things they do not know.
func TestPagesThatOldPrimariesDoNotHave(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := versioned(t, "0.3.64")
		for path, want := range map[string]string{"/global_subgraphs": "{}", "/global_subgraphs/nope": "null", "/node_replacements": "{}"} {
			resp, err := http.Get(b.instances[0].url() + path)
			require.NoError(t, err)
			require.Equal(t, http.StatusNotFound, statusOf(read(t, resp)), path)
			require.Equal(t, want, b.text(path), path)
			require.Equal(t, want, b.text("/api"+path), path)
		}
	})
}

// What a server says whose asset database is off is in the recordings. Newer ones have it on by default,
// and no flag switches it on at a hub; older ones have none.
func TestAssets(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		newest := versioned(t, "0.38.1")
		const id = "00000000-0000-4000-8000-000000000001"
		for _, path := range []string{"/api/assets", "/api/assets/" + id, "/api/assets/" + id + "/content", "/api/tags", "/api/assets/seed/status"} {
			newest.play([]exchange{{method: "GET", path: path, status: 503, want: `{"error": {"code": "SERVICE_DISABLED", "message": "Assets system is disabled: each server of this hub has assets of its own. Use /upload/image, /view and /history instead.", "details": {}}}`}})
		}
		require.Contains(t, newest.text("/api/features"), `"assets": false`)
		versioned(t, "0.3.64").play([]exchange{
			{method: "GET", path: "/api/assets", status: 404},
			{method: "POST", path: "/api/assets", body: "{}", status: 405, want: "405: Method Not Allowed"},
		})
	})
}

// The side bar lists what was made, and the same imported files as LoadImage: uploads, and, where
// nobody logs in, files that exist only on an instance.
func TestImportedFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for version, form := range map[string]string{"0.3.64": "%s", "0.33.0": "%s [input]"} {
			dir := t.TempDir()
			for _, name := range []string{"example.png", "deep/no.png"} {
				full := filepath.Join(dir, "input", filepath.FromSlash(name))
				require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
				require.NoError(t, os.WriteFile(full, []byte("png"), 0o600))
			}
			i := newInstance(t, sim.Config{Dir: dir, Version: version})
			b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{i.url()} })
			require.Equal(t, http.StatusOK, statusOf(b.upload("mine.png", "", "x")))
			imported := func() (names []string) {
				require.NoError(t, json.Unmarshal([]byte(b.text("/internal/files/input")), &names))
				return names
			}
			require.Equal(t, []string{fmt.Sprintf(form, "mine.png"), fmt.Sprintf(form, "example.png")}, imported(), version)
			info := decoded[map[string]struct {
				Input struct {
					Required struct{ Image []json.RawMessage }
				}
			}](t, b.text("/object_info/LoadImage"))
			offered := decoded[[]string](t, info["LoadImage"].Input.Required.Image[0])
			require.ElementsMatch(t, []string{"mine.png", "example.png"}, offered)
			b.gets("/view?type=input&filename=example.png")
			for n := range 2 {
				b.finished(b.submit(picture(n), "c"))
			}
			listed := strings.ReplaceAll(fmt.Sprintf(form, "NAME"), "[input]", "[output]")
			require.Equal(t, fmt.Sprintf("[%q, %q]", strings.Replace(listed, "NAME", "ComfyUI_00002_.png", 1), strings.Replace(listed, "NAME", "ComfyUI_00001_.png", 1)), b.text("/internal/files/output"))
			require.Equal(t, `{"error": "Invalid directory type"}`, string(answered(b.get("/internal/files/nope"))(t, http.StatusBadRequest)))

			b.tenant = "ada"
			require.Empty(t, imported())
			require.Equal(t, http.StatusNotFound, statusOf(b.get("/view?type=input&filename=example.png")), "it may be the upload of another tenant")
			b.tenant = ""
			require.Equal(t, []string{fmt.Sprintf(form, "mine.png")}, imported(), "once somebody has logged in it may be anybody's")
		}
	})
}

// A web UI that fits the oldest server is not called outdated because the primary is newer.
func TestRequiredFrontend(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) {
			for _, version := range []string{"0.33.0", "0.3.64"} {
				b.settings.Instances = append(b.settings.Instances, newInstance(t, sim.Config{Version: version}).url())
			}
		})
		stats := decoded[struct {
			System struct {
				Version  string `json:"comfyui_version"`
				Frontend string `json:"required_frontend_version"`
			}
		}](t, b.text("/system_stats"))
		require.Equal(t, "0.3.64", stats.System.Version)
		require.Equal(t, "1.27.10", stats.System.Frontend)
		require.Equal(t, 1, strings.Count(b.text("/experiment/models"), `"name": "checkpoints"`), "folders are joined")
	})
}

func TestFree(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		cachedAfter := func(free func()) bool {
			b.finished(b.submit(picture(1), "me"))
			free()
			c := b.dial("me")
			id := b.submit(picture(1), "me")
			for {
				m := c.next()
				if m.Type == "execution_cached" && m.Data.PromptID == id {
					b.finished(id)
					return !strings.Contains(m.raw, `"nodes": []`)
				}
			}
		}
		free := func(query string) func() {
			return func() {
				body := b.posts("/free"+query, `{"unload_models": true, "free_memory": true}`)
				require.Empty(t, body)
			}
		}
		require.True(t, cachedAfter(func() {}))
		require.True(t, cachedAfter(free("?clientId=somebody")), "nobody frees what another works with")
		require.False(t, cachedAfter(free("?clientId=me")))
		require.False(t, cachedAfter(free("")), "the address tells who asks")

		for policy, kept := range map[config.FreePolicy]bool{config.FreeOff: true, config.FreeAll: false} {
			b.settings.Free = policy
			require.NoError(t, b.hub.Start(t.Context(), b.settings))
			require.Equal(t, kept, cachedAfter(free("?clientId=somebody")), policy)
		}
		b.play([]exchange{
			{method: "POST", path: "/free", body: "{}", status: 200},
			{method: "POST", path: "/free", status: 500, want: trouble},
			{method: "POST", path: "/free", body: "[]", status: 500, want: trouble},
		})
	})
}

func TestLogReaders(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newPack(t, "one", sim.Config{})
		b := packed(t, p)
		reader := b.dial("reader")
		// A socket is open for its client before the hub has registered it.
		eventually(t, func() bool { return b.hub.Streams.Connected(stream.Key{Tenant: job.DefaultTenant, Client: "reader"}) }, time.Minute, time.Millisecond)
		subscribe := func(client string, enabled string) {
			b.play([]exchange{{method: "PATCH", path: "/internal/logs/subscribe", body: `{"clientId": "` + client + `", "enabled": ` + enabled + `}`, status: 200}})
		}
		subscribe("reader", "true")
		require.Regexp(t, `^PATCH /internal/logs/subscribe \{"clientId": "comfyhub-[0-9a-f-]+", "enabled": true\}$`, p.last(), "the instance knows the hub's socket only")
		line := `{"type": "logs", "data": {"entries": [{"t": "2026-01-01T00:00:00", "m": "hello"}], "size": null}}`
		b.hub.Logs.Pass("one", []byte(line))
		require.Equal(t, line, reader.next().raw)
		subscribe("reader", "false")
		require.Contains(t, p.last(), `"enabled": false`)
		b.play([]exchange{
			{method: "PATCH", path: "/internal/logs/subscribe", body: "{", status: 500, want: trouble},
			{method: "PATCH", path: "/internal/logs/subscribe", body: "{}", status: 500, want: trouble},
		})

		// Where users log in, nobody sees an instance's log.
		b.tenant = "ada"
		require.Equal(t, `""`, b.text("/internal/logs"))
		require.Equal(t, `{"entries": [], "size": {"cols": 80, "rows": 24}}`, b.text("/internal/logs/raw"))
		subscribe("reader", "true")
		require.Contains(t, p.last(), `"enabled": false`, "nothing was asked of the instance")
		b.tenant = ""
		require.Equal(t, `""`, b.text("/internal/logs"), "once somebody has logged in, strangers do not see it either")
	})
}

// A hub announces what all its servers do, and what it does itself; and what is true now.
func TestFeaturesOfTheFleet(t *testing.T) {
	const newest = `{"supports_preview_metadata": true, "supports_model_type_tags": true, "max_upload_size": 104857600, ` +
		`"extension": {"manager": {"supports_v4": true}}, "node_replacements": true, "assets": false%s}`
	flagged := func(flags ...string) sim.Config {
		return sim.Config{Version: "0.33.0", FeatureFlags: append(flags, "comfy_api_base_url=https://evil.example", "supports_more=true")}
	}
	one := flagged("show_signin_button=true", "partner_run_gate_enabled=false", "enable_telemetry=true")
	other := flagged("show_signin_button=true", "partner_run_gate_enabled=true")
	inBench(t, benchOf(0, serving(one, other, sim.Config{Version: "0.33.0"})), func(t *testing.T, b *bench) {
		announced := func(want string) {
			t.Helper()
			eventually(t, func() bool { return string(b.gets("/api/features")) == want }, 10*time.Second, 20*time.Millisecond, want)
			c := b.dial("c" + fmt.Sprint(len(want)))
			require.NoError(t, c.conn.Write(t.Context(), websocket.MessageText, []byte(`{"type": "feature_flags", "data": {}}`)))
			require.Equal(t, `{"type": "feature_flags", "data": `+want+`}`, c.next().raw)
		}
		announced(fmt.Sprintf(newest, ""))
		b.instances[2].die()
		announced(fmt.Sprintf(newest, `, "show_signin_button": true`))
		b.instances[1].die()
		announced(fmt.Sprintf(newest, `, "enable_telemetry": true, "partner_run_gate_enabled": false, "show_signin_button": true`))
		b.instances[0].die()
		announced(`{"supports_preview_metadata": true, "max_upload_size": 104857600}`)
	})
}
