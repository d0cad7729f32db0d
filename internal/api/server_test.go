package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/intake"
)

// fakeCore is a hub without anything in it.
type fakeCore struct {
	started bool
	logins  int
}

func (c *fakeCore) Started() bool            { return c.started }
func (c *fakeCore) Release() string          { return "1.2.3" }
func (c *fakeCore) Version() comfyui.Version { return comfyui.Version{} }
func (c *fakeCore) NoteLogin()               { c.logins++ }
func (c *fakeCore) Operates(t string) bool   { return t == "root" }
func (c *fakeCore) Audit(string, ...any)     {}
func (c *fakeCore) FindKey(context.Context, string) (apikeys.Access, error) {
	return apikeys.Access{}, apikeys.ErrUnknown
}

// The hub's own routes come first, then ComfyUI's; only what resembles neither
// is passed on.
func TestServerFindsTheRoom(t *testing.T) {
	t.Parallel()
	says := func(text string) Handler {
		return func(w http.ResponseWriter, _ *http.Request, _ Requester, path []string) {
			body := text
			for _, value := range path {
				body += " " + value
			}
			WriteText(w, http.StatusOK, body)
		}
	}
	var own, table Router
	own.Handle("GET /hub/jobs/*", says("own"))
	table.Both("POST /prompt", says("comfy"))
	table.Handle("GET /internal/logs", says("logs"))
	core := &fakeCore{}
	requests := &Requests{
		Intake: intake.New(intake.Options{Dir: t.TempDir()}), Log: func() *slog.Logger { return slog.New(slog.DiscardHandler) },
	}
	server := NewServer(core, requests, Rooms{
		Own: &own, ComfyUI: &table,
		Forward: func(w http.ResponseWriter, _ *http.Request, _ Requester, path aiohttp.Path) {
			WriteText(w, http.StatusOK, "forward "+path.String())
		},
	})
	serve := func(method, target, login string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		server.Serve(w, httptest.NewRequest(method, target, http.NoBody), Visitor{IP: "10.0.0.1", Tenant: login})
		return w
	}
	w := serve("GET", "/hub/jobs/7", "")
	require.Equal(t, http.StatusServiceUnavailable, w.Code, "not started")
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	core.started = true
	for _, c := range []struct {
		method, target string
		status         int
		body, allow    string
	}{
		{"GET", "/hub/jobs/7", 200, "own 7", ""},
		{"POST", "/hub/jobs/7", 405, "", "GET,HEAD"},
		{"POST", "/prompt", 200, "comfy", ""},
		{"POST", "/api/%70rompt", 200, "comfy", ""},
		{"GET", "/prompt", 404, "", ""}, // ComfyUI's static files are mounted at /
		{"PUT", "/prompt", 405, "", "GET,HEAD,POST"},
		{"OPTIONS", "/prompt", 200, "", ""},
		{"GET", "/internal/logs", 200, "logs", ""},
		{"POST", "/internal/logs", 405, "", "GET,HEAD"},
		{"GET", "/internal/other", 404, "404: Not Found", ""},
		{"GET", "/pack/call", 200, "forward /pack/call", ""},
		{"POST", "/pack/call", 200, "forward /pack/call", ""},
		{"GET", "/PROMPT", 404, "", ""},
		{"GET", "/hub/else", 404, "", ""},
		{"GET", "/queue/x", 404, "", ""},
		{"GET", "/pack/%2e%2e/queue", 404, "", ""},
		{"GET", "//pack", 404, "404: Not Found", ""},
	} {
		w := serve(c.method, c.target, "")
		require.Equal(t, c.status, w.Code, "%s %s", c.method, c.target)
		if c.body != "" {
			require.Equal(t, c.body, w.Body.String(), "%s %s", c.method, c.target)
		}
		require.Equal(t, c.allow, w.Header().Get("Allow"), "%s %s", c.method, c.target)
		require.Equal(t, "1.2.3", w.Header().Get(comfyui.HubHeader))
	}
	require.Zero(t, core.logins)
	serve("POST", "/prompt", "ann")
	require.Equal(t, 1, core.logins)
}
