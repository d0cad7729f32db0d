package hub

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// However Redis fails, POST /prompt is answered 503 and when to come back.
func TestPromptWhileRedisFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t *testing.T) (url string, begin, end func()){
		"it ends connections": func(t *testing.T) (string, func(), func()) {
			var broken atomic.Bool
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr(), broken.Load)
			return proxy.URL(), func() { broken.Store(true) }, func() { broken.Store(false) }
		},
		"all connections are in use": func(t *testing.T) (string, func(), func()) {
			server := redistest.Start(t)
			return "redis://" + server.Addr() + "?read_timeout=1m&pool_size=2&pool_timeout=1s", server.Pause, server.Resume
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, begin, end := fail(t)
			b := newBench(t, 1, func(b *bench) { b.id.Redis = url })
			begin()
			const posts = 4 // more than there are connections
			answers := make(chan *http.Response, posts)
			var wait sync.WaitGroup
			for range posts {
				wait.Go(func() {
					if resp, err := http.Post(b.web.URL+"/prompt", "application/json", strings.NewReader(`{"prompt": `+picture(2)+`}`)); err == nil {
						answers <- resp
					}
				})
			}
			resp := <-answers
			end()
			wait.Wait()
			close(answers)
			for other := range answers {
				read(t, other)
			}
			_, answer := read(t, resp)
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, string(answer))
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
			require.Contains(t, string(answer), `"queue_unavailable"`)
		})
	}
}

// Without Redis the hub does not know which files exist, so a prompt that names
// one does not count as bad.
func TestPromptWithAFileWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBench(t, 1, func(b *bench) { b.id.Redis = server.URL() })
	require.Equal(t, http.StatusOK, statusOf(b.upload("mine.png", "", "x")))
	server.Stop()
	status, answer := b.post("/prompt", `{"prompt": {"1": {"class_type": "LoadImage", "inputs": {"image": "mine.png"}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}}`)
	require.Equal(t, http.StatusServiceUnavailable, status, string(answer))
	require.Equal(t, http.StatusServiceUnavailable, statusOf(b.get("/view?filename=mine.png&type=input")))
	require.Equal(t, http.StatusServiceUnavailable, statusOf(b.get("/queue")), "a listing that cannot be complete is no listing")
	require.InDelta(t, 3, b.metric("comfyhub_redis_errors_total"), 0)
	require.Positive(t, b.metric(`comfyhub_redis_request_errors_total{kind="read",reason="unavailable"}`))
}

// aiohttp answers in HTML to those who accept it.
func TestTroubleInHTML(t *testing.T) {
	const page500 = "<html><head><title>500 Internal Server Error</title></head><body>\n" +
		"<h1>500 Internal Server Error</h1>\nServer got itself in trouble\n</body></html>\n"
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		for _, path := range []string{"/prompt", "/queue"} {
			status, header, page := b.ask(http.MethodPost, path, "{", http.Header{"Accept": {"text/html,*/*"}})
			require.Equal(t, http.StatusInternalServerError, status)
			require.Equal(t, page500, page)
			require.Equal(t, "text/html; charset=utf-8", header.Get("Content-Type"))
		}
	})
}

// upload posts a file and returns the name it was given.
func (b *bench) upload(name, subfolder, content string) (int, string) {
	b.t.Helper()
	kind, body := form(b.t, "image", name, content, "subfolder", subfolder)
	status, _, answer := b.ask(http.MethodPost, "/upload/image", body, http.Header{"Content-Type": {kind}})
	if status != http.StatusOK {
		return status, ""
	}
	return status, decoded[struct{ Name string }](b.t, answer).Name
}

// form is the body of an upload of one file, with further fields.
func form(t testing.TB, field, name, content string, fields ...string) (kind, body string) {
	t.Helper()
	var out bytes.Buffer
	form := multipart.NewWriter(&out)
	for n := 0; n < len(fields); n += 2 {
		require.NoError(t, form.WriteField(fields[n], fields[n+1]))
	}
	must(must(form.CreateFormFile(field, name))(t).Write([]byte(content)))(t)
	require.NoError(t, form.Close())
	return form.FormDataContentType(), out.String()
}
