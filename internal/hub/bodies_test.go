package hub_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
)

// noise is text that hardly compresses.
func noise(size int) string {
	raw := make([]byte, size/2)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

// kindOf returns the type of the error that refused a prompt.
func kindOf(t testing.TB, answer []byte) string {
	t.Helper()
	refused := decoded[struct{ Error struct{ Type string } }](t, answer)
	return refused.Error.Type
}

// A few large prompts fill the queue just as many small ones do.
func TestQueueIsFullOfBytes(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.MaxQueueSize = 64 << 10 }), func(t *testing.T, b *bench) {
		running := b.begins(endless(1), "ann")
		large := func(n int) (int, []byte) {
			return b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"note": %q}}`, picture(n), noise(20<<10)))
		}
		accepted := 0
		status, answer := http.StatusOK, []byte(nil)
		for ; status == http.StatusOK && accepted < 10; accepted++ {
			status, answer = large(accepted)
		}
		require.Equal(t, http.StatusTooManyRequests, status, string(answer))
		require.Equal(t, "queue_full", kindOf(t, answer))
		jobs, size, err := b.hub.Queue.Waiting(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, accepted-1, jobs)
		require.LessOrEqual(t, size, int64(64<<10))
		b.submit(picture(99), "bob") // there is room for a small one
		b.post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, running))
	})
}

// sendPacked makes a request whose body may be compressed.
func (b *bench) sendPacked(method, path, encoding string, body []byte) (int, []byte) {
	b.t.Helper()
	return read(b.t, b.send(exchange{method: method, path: path, body: string(body), header: headers("Content-Encoding", encoding)}))
}

// Every route refuses a body that is cheap to send and expensive to read, at little cost. The gate
// tries one of three at each route, COMFYHUB_SLOW all.
func TestBombsAtEveryRoute(t *testing.T) {
	if testing.Short() {
		t.Skip("much computing, one thing after the other: nothing for the race detector")
	}
	b := newBench(t, 1)
	fill := func(head, unit, tail string) []byte {
		return zipped([]byte(head + strings.Repeat(unit, (32<<20-len(head)-len(tail)-2)/len(unit)) + tail))
	}
	bombs := [][]byte{fill(`{"prompt": [`, `{},`, `{}]}`), fill(`{"prompt": {`, `"":0,`, `"a":0}}`), fill(`{"prompt": {}, "x": "`, `y`, `"}`)}
	sent := 0
	for _, routes := range b.rooms.Routers() {
		for pattern, methods := range routes.All() {
			path := strings.NewReplacer("**", "x/y", "*", "x").Replace(pattern.String())
			for _, method := range methods {
				if method == http.MethodGet {
					continue
				}
				sent++
				for n, bomb := range bombs {
					if (n+sent)%inTheGate(3) != 0 {
						continue
					}
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					status, _ := b.sendPacked(method, path, "gzip", bomb)
					runtime.ReadMemStats(&after)
					require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), "%d %s %s: %d", n, method, path, status)
				}
			}
		}
	}
	require.Equal(t, "success", b.finished(b.submit(picture(9), "ann")).Status.Text)
}

func TestRefusedBodies(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	many := "[" + strings.Repeat("0,", 1_100_000) + "0]"
	ids := `{"delete": [` + strings.Repeat(`"6b29fc40-ca47-1067-b31d-00dd010662da", `, 9999) + `"x"]}`
	for name, tt := range map[string]struct {
		path, encoding, body string
		status               int
		kind, text           string
	}{
		"too many values":           {"/prompt", "", `{"prompt": {}, "x": ` + many + `}`, 413, "too_many_values", ""},
		"too many values in a list": {"/queue", "", `{"delete": ` + many + `}`, 413, "too_many_values", ""},
		"too long an order":         {"/interrupt", "", `{"x": "` + strings.Repeat("y", 64<<10) + `"}`, 413, "", "Maximum request body size 65536 exceeded"},
		"too long a list":           {"/queue", "", strings.Repeat(" ", 5<<20), 413, "", "Maximum request body size 4194304 exceeded"},
		"a bomb":                    {"/prompt", "gzip", strings.Repeat(" ", 32<<20), 413, "body_inflates", ""},
		"too deep":                  {"/prompt", "", strings.Repeat("[", 2000), 500, "", trouble},
		"too deep an interrupt":     {"/interrupt", "", strings.Repeat("[", 2000), 500, "", trouble},
		"no gzip":                   {"/prompt", "gzip?", "hello", 500, "", trouble},
		"ten thousand ids":          {"/queue", "", ids, 200, "", ""},
		"ten thousand ids, packed":  {"/history", "deflate", ids, 200, "", ""},
		"large settings":            {"/settings", "", `{"a": "` + strings.Repeat("y", 5<<20) + `"}`, 200, "", ""},
		"a large workflow":          {"/userdata/a.json", "", strings.Repeat("y", 8<<20), 200, "", `"a.json"`},
		"a packed workflow":         {"/userdata/b.json", "gzip", noise(1 << 20), 200, "", `"b.json"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := []byte(tt.body)
			switch tt.encoding {
			case "gzip":
				body = zipped(body)
			case "deflate":
				var packed bytes.Buffer
				w := zlib.NewWriter(&packed)
				_, _ = w.Write(body)
				_ = w.Close()
				body = packed.Bytes()
			}
			status, answer := b.sendPacked(http.MethodPost, tt.path, tt.encoding, body)
			require.Equal(t, tt.status, status, string(answer))
			if tt.kind != "" {
				require.Equal(t, tt.kind, kindOf(t, answer))
			}
			require.Contains(t, string(answer), tt.text)
		})
	}
}

// Each address may have only so many bodies on their way. Requests without a body
// and other addresses are not affected.
func TestBodiesOnTheirWay(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	here := api.RequesterOf(httptest.NewRequest(http.MethodGet, "/", nil), api.Visitor{IP: "127.0.0.1"}).Share()
	var leave []func()
	for {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
		_, done, err := b.hub.Intake().Guard(httptest.NewRecorder(), r, here)
		if err != nil {
			break
		}
		leave = append(leave, done)
	}
	for _, path := range []string{"/prompt", "/upload/image", "/somewhere/else"} {
		require.Equal(t, "busy", kindOf(t, answered(b.post(path, "{}"))(t, http.StatusServiceUnavailable, path)))
	}
	b.gets("/queue")
	b.tenant = "ann"
	b.submit(picture(3), "ann")
	b.tenant = ""
	for _, done := range leave {
		done()
	}
	b.submit(picture(4), "")
}

// Prompts that are small while they wait and large in a listing do not fill the
// hub's memory when they are listed. They also count by their size.
func TestListingOfFoldedBodies(t *testing.T) {
	b := newBench(t, 1)
	running := b.begins(endless(1), "ann")
	const jobs, size = 16, 2 << 20
	note := strings.Repeat("x", size)
	for n := range jobs {
		b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"note": %q}}`, picture(n), note))
	}
	_, bytes, err := b.hub.Queue.Waiting(t.Context(), "")
	require.NoError(t, err)
	require.Greater(t, bytes, int64(jobs*size/16), "they are counted by their size, too")
	before, most := held(), uint64(0)
	w := &counted{header: http.Header{}, look: func() { most = max(most, held()) }}
	r := httptest.NewRequest(http.MethodGet, "/queue", nil)
	b.rooms.Serve(w, r, api.Visitor{IP: "127.0.0.1"})
	require.Equal(t, http.StatusOK, w.status)
	require.Greater(t, w.n, jobs*size)
	require.Equal(t, w.header.Get("Content-Length"), fmt.Sprint(w.n))
	require.Less(t, most, before+jobs*size/2, "a listing of %d MiB held %d MiB more", w.n>>20, int64(most-before)>>20)
	b.post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, running))
}

// counted is a response that counts its bytes and does not keep them.
type counted struct {
	header    http.Header
	status, n int
	look      func() // is called for every 2 MiB
}

func (c *counted) Header() http.Header { return c.header }

func (c *counted) WriteHeader(status int) { c.status = status }

func (c *counted) Write(p []byte) (int, error) {
	if c.n>>21 != (c.n+len(p))>>21 {
		c.look()
	}
	c.n += len(p)
	return len(p), nil
}

// held returns how many bytes are in use, not counting garbage.
func held() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

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
		status, answer := b.sendPacked(tt.method, tt.path, "", []byte(tt.body))
		require.Equal(t, tt.status, status, "%s: %s", name, answer[:min(len(answer), 500)])
		require.Contains(t, string(answer), tt.want, name)
		require.Less(t, len(answer), 1<<20+1, name)
	}
	_, resp, err := websocket.Dial(t.Context(), b.web.URL+"/ws?clientId="+long, nil)
	require.Error(t, err)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)

	for _, subfolder := range []string{strings.Repeat("x", 256), strings.Repeat("x/", 3000)} {
		require.GreaterOrEqual(t, statusOf(b.upload("a.png", subfolder, "x")), 400, len(subfolder))
	}
	require.GreaterOrEqual(t, statusOf(b.upload(strings.Repeat("x", 256)+".png", "", "x")), 400)

	b.tenant = long
	status, answer := b.get("/queue")
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "invalid_tenant", kindOf(t, answer))
}

func zipped(body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body)
	_ = w.Close()
	return b.Bytes()
}

// Names of files are longer than references to them: what they make of a workflow has the bound
// of a body, too.
func TestComfyV2ReferencesAreBounded(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.MaxBody = 6 << 10 }), func(t *testing.T, b *bench) {
		c := b.v2("")
		status, a, _ := c.uploads(strings.Repeat("n", 180)+".png", "x")
		require.Equal(t, http.StatusCreated, status)
		post := func(references int) (int, string) {
			list := strings.Repeat(`, {"__type": "core/ASSET", "info": {"id": "`+a.ID+`"}}`, references)
			body := `{"workflow": {"1": {"class_type": "SaveImage", "inputs": {"more": [` + list[2:] + `]}}}}`
			require.Less(t, len(body), 6<<10)
			status, _, code := c.do("POST", "/api/v2/jobs", "application/json", []byte(body))
			return status, code
		}
		status, code := post(50)
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
		require.Equal(t, "payload_too_large", code)
		_, code = post(5)
		require.Equal(t, "invalid_workflow", code)
	})
}
