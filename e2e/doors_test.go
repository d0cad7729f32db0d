package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// secret is in a prompt of the worker and nowhere else.
const secret = "the-worker's-secret"

// raw sends a request line of the attacker's as it is; Go's client would clean it.
func (f *fleet) raw(t *testing.T, method, target string) (int, string) {
	t.Helper()
	conn := must.Get(net.Dial("tcp", f.Addr))(t)
	defer conn.Close()
	must.Get(fmt.Fprintf(conn, "%sConnection: close\r\nContent-Length: 2\r\n\r\n{}", f.asSender(method, target)))(t)
	r := must.Get(http.NewRequest(method, f.URL("/"), http.NoBody))(t)
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	require.NoError(t, err, "%s %s", method, target)
	defer resp.Body.Close()
	return resp.StatusCode, string(must.Get(io.ReadAll(resp.Body))(t))
}

// The doors that attacks on a running hub once opened stay shut: paths that an instance reads
// differently from the hub, and calls that change machines.
func TestDoors(t *testing.T) {
	f := siege(t, "")
	body := fmt.Sprintf(`{"prompt_id": "private", "client_id": "worker", "extra_data": {"note": %q, "api_key_comfy_org": %q}, "prompt": {
		"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 1}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 3600, "steps": 10000, "nonce": 1}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "x"}}}}`, secret, secret)
	code, answer, err := f.as(t.Context(), worker, http.MethodPost, "/prompt", nil, strings.NewReader(body))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code, string(answer))
	running := func() bool {
		_, answer, err := f.as(t.Context(), worker, http.MethodGet, "/hub/jobs/private", nil, nil)
		var j struct {
			Status  string
			Started float64 `json:"started_at"`
		}
		return err == nil && json.Unmarshal(answer, &j) == nil && j.Status == "running" && j.Started > 0
	}
	f.eventually(running, "the job runs")

	t.Run("paths", func(t *testing.T) {
		for _, path := range []string{
			"/%71ueue", "/%61pi/queue", "/api/%71ueue", "/%68istory", "/%76iew?filename=x_00001_.png", "/%61pi/%6aobs", "/%70rompt",
			"//queue", "/api//queue", "/QUEUE", "/Queue", "/queue/", "/queue;x", "/queue%00", "/queue%3Fx", "/./queue", "/x/../queue", "/x/%2e%2e/queue",
			"/%2571ueue", "/%2fqueue", "/x/..%2fqueue", `/x\..\queue`, "/x/..%5cqueue", "/internal/%6cogs", "/internal/logs/raw", "/%69nternal/logs/raw",
			"/%75serdata?dir=.", "/%69nterrupt", "/%75pload/image", "/%66ree", "/api/%69nterrupt", "//interrupt", "/interrupt/", "/api//interrupt",
		} {
			for _, method := range []string{"GET", "POST", "DELETE"} {
				code, answer := f.raw(t, method, path)
				require.NotContains(t, answer, secret, "%s %s: %d", method, path, code)
				require.NotContains(t, answer, "private", "%s %s: %d", method, path, code)
			}
		}
		require.True(t, running(), "nobody has stopped it")
	})
	t.Run("machines", func(t *testing.T) {
		for _, path := range []string{
			"/manager/reboot", "/manager/queue/update_all", "/manager/queue/start", "/snapshot/restore", "/snapshot/remove", "/snapshot/get_current",
			"/comfyui_manager/x", "/v2/manager/reboot", "/v2/manager/queue/start", "/v2/snapshot/restore", "/customnode/install", "/api/manager/reboot",
			"/%6danager/reboot", "/MANAGER/reboot", "/externalmodel/getlist",
		} {
			for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
				code, answer := f.raw(t, method, path)
				require.GreaterOrEqual(t, code, 403, "%s %s: %s", method, path, answer)
				require.LessOrEqual(t, code, 405, "%s %s: %s", method, path, answer)
			}
		}
	})
}
