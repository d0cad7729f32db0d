package hub

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
)

// Names that clients choose are bounded before they are stored anywhere, and no
// answer repeats megabytes of what was sent.
func TestLengths(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	long, huge := strings.Repeat("x", api.MaxName+1), strings.Repeat("x", 3<<20)
	fits := long[1:]
	prompt := func(rest string) string { return fmt.Sprintf(`{"prompt": %s, %s}`, picture(1), rest) }
	for name, tt := range map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"prompt id":              {"POST", "/prompt", prompt(`"prompt_id": "` + long + `"`), 400, `"type": "invalid_prompt_id"`},
		"prompt id that fits":    {"POST", "/prompt", prompt(`"prompt_id": "` + fits + `"`), 200, fits},
		"client id":              {"POST", "/prompt", prompt(`"client_id": "` + long + `"`), 400, `"type": "invalid_client_id"`},
		"client id in the extra": {"POST", "/prompt", prompt(`"extra_data": {"client_id": "` + long + `"}`), 400, `"type": "invalid_client_id"`},
		"client id that fits":    {"POST", "/prompt", prompt(`"client_id": "` + fits + `"`), 200, "prompt_id"},
		"client id of a query":   {"POST", "/interrupt?clientId=" + long, "", 400, `"type": "invalid_client_id"`},
		"client id of an order":  {"POST", "/interrupt", `{"client_id": "` + long + `"}`, 200, ""},
		"class":                  {"POST", "/prompt", `{"prompt": {"1": {"class_type": "` + huge + `", "inputs": {}}}}`, 400, `"type": "`},
		"node":                   {"POST", "/prompt", `{"prompt": {"` + huge + `": {"class_type": "Nope", "inputs": {}}}}`, 400, `"type": "`},
		"value":                  {"POST", "/prompt", `{"prompt": {"1": {"class_type": "SaveImage", "inputs": {"images": "` + huge + `"}}}}`, 400, `"type": "`},
		"deleted ids":            {"POST", "/queue", `{"delete": ["` + huge + `"]}`, 200, ""},
		"cancelled ids":          {"POST", "/api/jobs/cancel", `{"job_ids": ["` + huge + `"]}`, 400, "invalid_ids"},
		"held picture":           {"PUT", "/api/etn/image/" + long, "x", 400, "Invalid id"},
		"user file":              {"POST", "/userdata/" + long, "x", 400, ""},
		"user":                   {"POST", "/users", `{"username": "` + strings.Repeat("é", 300) + `"}`, 500, ""},
		"request line":           {"GET", "/history/" + strings.Repeat("x", api.MaxTarget), "", 400, "Got more than 8190 bytes"},
		"query":                  {"GET", "/view?filename=" + strings.Repeat("x", api.MaxTarget), "", 400, "Got more than 8190 bytes"},
		"unknown path":           {"POST", "/" + strings.Repeat("x", api.MaxTarget), "", 400, "Got more than 8190 bytes"},
		"long path that fits":    {"GET", "/history/" + strings.Repeat("x", 8000), "", 200, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, answer := b.sendPacked(tt.method, tt.path, "", []byte(tt.body))
			require.Equal(t, tt.status, status, string(answer[:min(len(answer), 500)]))
			require.Contains(t, string(answer), tt.want)
			require.Less(t, len(answer), 1<<20+1)
		})
	}
	_, resp, err := websocket.Dial(t.Context(), b.web.URL+"/ws?clientId="+long, nil)
	require.Error(t, err)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

func TestLongUploads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		for _, subfolder := range []string{strings.Repeat("x", 256), strings.Repeat("x/", 3000)} {
			status, _ := b.upload("a.png", subfolder, "x")
			require.GreaterOrEqual(t, status, 400, len(subfolder))
		}
		status, _ := b.upload(strings.Repeat("x", 256)+".png", "", "x")
		require.GreaterOrEqual(t, status, 400)
	})
}

func TestLongTenant(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) { b.tenant = strings.Repeat("x", api.MaxName+1) })
		status, answer := b.get("/queue")
		require.Equal(t, http.StatusBadRequest, status)
		require.Equal(t, "invalid_tenant", kindOf(t, answer))
	})
}
