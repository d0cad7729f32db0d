package hub

import (
	"bytes"
	"compress/zlib"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

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
	var refused struct{ Error struct{ Type string } }
	require.NoError(t, json.Unmarshal(answer, &refused), string(answer))
	return refused.Error.Type
}

// A few large prompts fill the queue just as many small ones do.
func TestQueueIsFullOfBytes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) { b.settings.MaxQueueSize = 64 << 10 })
		running := b.submit(endless(1), "ann")
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, 5*time.Millisecond)
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
		jobs, size, err := b.hub.queue.Waiting(t.Context(), "")
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
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.web.URL+path, bytes.NewReader(body))
	require.NoError(b.t, err)
	if encoding != "" {
		r.Header.Set("Content-Encoding", encoding)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(b.t, err)
	return read(b.t, resp)
}

// Every route refuses a body that is cheap to send and expensive to read, at
// little cost.
func TestBombsAtEveryRoute(t *testing.T) {
	if testing.Short() {
		t.Skip("much computing, one thing after the other: nothing for the race detector")
	}
	b := newBench(t, 1)
	bombs := map[string][]byte{}
	for name, body := range hostile(32 << 20) {
		bombs[name] = zipped(body)
	}
	for _, routes := range b.rooms.Routers() {
		for pattern, methods := range routes.All() {
			path := strings.NewReplacer("**", "x/y", "*", "x").Replace(pattern.String())
			for _, method := range methods {
				if method == http.MethodGet {
					continue
				}
				for name, bomb := range bombs {
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					status, _ := b.sendPacked(method, path, "gzip", bomb)
					runtime.ReadMemStats(&after)
					require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), "%s %s %s: %d", name, method, path, status)
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
		"too deep":                  {"/prompt", "", strings.Repeat("[", 2000), 500, "", body500},
		"too deep an interrupt":     {"/interrupt", "", strings.Repeat("[", 2000), 500, "", body500},
		"no gzip":                   {"/prompt", "gzip?", "hello", 500, "", body500},
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
		_, done, err := b.hub.intake.Guard(httptest.NewRecorder(), r, here)
		if err != nil {
			break
		}
		leave = append(leave, done)
	}
	for _, path := range []string{"/prompt", "/upload/image", "/somewhere/else"} {
		status, answer := b.post(path, "{}")
		require.Equal(t, http.StatusServiceUnavailable, status, path)
		require.Equal(t, "busy", kindOf(t, answer))
	}
	status, _ := b.get("/queue")
	require.Equal(t, http.StatusOK, status)
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
	running := b.submit(endless(1), "ann")
	eventually(t, func() bool { return started(b) == 1 }, time.Minute, 5*time.Millisecond)
	const jobs, size = 8, 8 << 20
	note := strings.Repeat("x", size)
	for n := range jobs {
		status, answer := b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"note": %q}}`, picture(n), note))
		require.Equal(t, http.StatusOK, status, string(answer))
	}
	_, bytes, err := b.hub.queue.Waiting(t.Context(), "")
	require.NoError(t, err)
	require.Greater(t, bytes, int64(jobs*size/16), "they are counted by their size, too")
	before, most := held(), uint64(0)
	w := &counted{header: http.Header{}, every: size, look: func() { most = max(most, held()) }}
	r := httptest.NewRequest(http.MethodGet, "/queue", nil)
	b.rooms.Serve(w, r, api.Visitor{IP: "127.0.0.1"})
	require.Equal(t, http.StatusOK, w.status)
	require.Greater(t, w.n, int64(jobs*size))
	require.Equal(t, w.header.Get("Content-Length"), fmt.Sprint(w.n))
	require.Less(t, most, before+jobs*size/2, "a listing of %d MiB held %d MiB more", w.n>>20, int64(most-before)>>20)
	b.post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, running))
}

// counted is a response that counts its bytes and does not keep them.
type counted struct {
	header http.Header
	status int
	n      int64
	// look is called once for every so many bytes.
	every int64
	look  func()
}

func (c *counted) Header() http.Header    { return c.header }
func (c *counted) WriteHeader(status int) { c.status = status }
func (c *counted) Write(p []byte) (int, error) {
	before := c.n
	c.n += int64(len(p))
	if before/c.every != c.n/c.every {
		c.look()
	}
	return len(p), nil
}

// held returns how many bytes are in use and no garbage.
func held() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
