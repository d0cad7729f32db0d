package mount

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// Each dialect answers its own routes: ComfyUI's with and without /api, the hub's
// only as written.
func TestEachRoomAnswersItsRoutes(t *testing.T) {
	t.Parallel()
	h := hub.New(config.Identity{Redis: "embedded", Data: t.TempDir(), GossipBind: "127.0.0.1:0"})
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	a := New(h)
	ask := func(method, path, body string) (int, string) {
		w := httptest.NewRecorder()
		a.Serve(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)), api.Visitor{IP: "127.0.0.1"})
		return w.Code, w.Body.String()
	}
	status, _ := ask("GET", "/queue", "")
	require.Equal(t, http.StatusServiceUnavailable, status, "before the start")
	require.NoError(t, h.Start(t.Context(), config.Settings{Logger: slog.New(slog.DiscardHandler)}))
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "/queue", "", 200, `{"queue_running": [], "queue_pending": []}`},
		{"GET", "/api/queue", "", 200, `{"queue_running": [], "queue_pending": []}`},
		{"GET", "/history", "", 200, `{}`},
		{"GET", "/prompt", "", 200, `{"exec_info": {"queue_remaining": 0}}`},
		{"POST", "/prompt", `{}`, 400, `"no_prompt"`},
		{"GET", "/view", "", 404, ``},
		{"GET", "/view?filename=none.png", "", 404, ``},
		{"POST", "/interrupt", "", 200, ``},
		{"GET", "/users", "", 200, `"storage": "server"`},
		{"GET", "/hub/jobs", "", 200, `[]`},
		{"GET", "/hub/jobs/none", "", 404, `Job not found`},
		{"GET", "/hub/instances", "", 200, `[]`},
		{"GET", "/hub/stats", "", 200, `"queued": 0, "running": 0, "sockets": 0, "instances": {`},
		{"GET", "/hub/scale", "", 403, `Only operators may do this`},
		{"POST", "/hub/jobs/none/cancel", "", 200, `{"cancelled": false}`},
		{"POST", "/hub/explain", `{"prompt_id": "none"}`, 404, `Job not found`},
		{"PATCH", "/hub/jobs/none", `{"paused": true}`, 404, `Job not found`},
		{"PATCH", "/hub/jobs/none", `{"pause": true}`, 400, `want JSON with one or more of`},
		{"PATCH", "/hub/jobs/none", strings.Repeat(" ", int(api.SmallBody.Limit)+1), 413, ``},
		{"POST", "/hub/explain", `{}`, 400, `prompt_id is needed`},
		{"POST", "/hub/explain", `[`, 400, `prompt_id is needed`},
		{"POST", "/hub/explain", `{"prompt_id": 5}`, 400, `prompt_id is needed`},
		{"POST", "/hub/explain", strings.Repeat(" ", int(api.SmallBody.Limit)+1), 413, ``},
		{"POST", "/hub/files", `{"filename": "none.png"}`, 404, `File not found`},
		{"POST", "/hub/files", `{"filename": "../none.png"}`, 404, `File not found`},
		{"POST", "/hub/files", `{}`, 400, `filename`},
		{"POST", "/hub/files", `{"filename": "a.png", "expires_in": 0}`, 400, `1 to 604800`},
		{"POST", "/hub/files", `{"filename": "a.png", "expires_in": 604801}`, 400, `1 to 604800`},
		{"POST", "/hub/files", `{"filename": "a.png", "expires_in": "soon"}`, 400, `filename`},
		{"POST", "/hub/files", strings.Repeat(" ", int(api.SmallBody.Limit)+1), 413, ``},
		{"GET", "/hub/files/a.png", "", 403, `This link is not valid`},
		{"GET", fmt.Sprintf("/hub/files/a.png?exp=%d&sig=forged", time.Now().Add(time.Hour).Unix()), "", 403, `This link is not valid`},
		{"GET", fmt.Sprintf("/hub/files/a.png?exp=%d&sig=forged", time.Now().Add(-time.Hour).Unix()), "", 403, `This link is not valid`},
		// Nothing is connected that could answer what no room knows.
		{"GET", "/api/hub/jobs", "", 404, ``},
		{"GET", "/some/custom/node", "", 404, ``},
	} {
		status, answer := ask(c.method, c.path, c.body)
		assert.Equal(t, c.status, status, "%s %s %.40s: %s", c.method, c.path, c.body, answer)
		assert.Contains(t, answer, c.answer, "%s %s", c.method, c.path)
	}
}
