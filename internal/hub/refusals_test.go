package hub_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/metrics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/refusal"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
	"github.com/comfyhub/comfyhub/internal/submit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const unfit = `{"error": {"type": "prompt_outputs_failed_validation", "message": "Prompt outputs failed validation", "details": "", "extra_info": {}},
	"node_errors": {"1": {"errors": [{"type": "value", "message": "Value too small", "details": "width"}], "dependent_outputs": ["2"], "class_type": "EmptyImage"}}}`

// dialects are the routes that take prompts.
var dialects = []struct{ name, path, body string }{
	{"comfy", "/prompt", `{"prompt": ` + picture(1) + `}`},
	{"comfyv2", "/api/v2/jobs", `{"workflow": ` + picture(1) + `}`},
	{"plain", "/hub/v1/submit", `{"workflow": ` + picture(1) + `}`},
	{"sdapi", "/sdapi/v1/txt2img", `{"prompt": "a cat"}`},
}

// Every error of Submit has one answer in each dialect. The golden file has them byte for byte.
func TestRefusalsInEveryDialect(t *testing.T) {
	log, server := &logtest.Log{}, (*a1111Server)(nil)
	inBench(t, benchOf(1, func(b *bench) {
		server = newA1111(b.t.(*testing.T), simsd.Config{})
		b.settings.A1111, b.log = []string{server.url}, log
	}), func(t *testing.T, b *bench) {
		b.readyA1111(1)
		var err error
		b.hub.Submitter.Put = func(context.Context, queue.Submission) (queue.Accepted, error) {
			return queue.Accepted{}, fmt.Errorf("around: %w", err)
		}
		noted := make(chan string, 1)
		b.hub.Submitter.Refused = func(_ job.Requester, err error) { noted <- metrics.RefusalText(err) }
		var out strings.Builder
		for _, refused := range []struct {
			name string
			err  error
		}{
			{"time", queue.SpentError{Wait: 3 * time.Hour}},
			{"rate", queue.RateError{Wait: 1500 * time.Millisecond}},
			{"storage of a tenant", submit.ErrTenantStorage},
			{"queue of a tenant", queue.ErrTenantFull},
			{"bytes of a tenant", queue.ErrTenantFullBytes},
			{"uploads", &files.FullError{Limit: "inputs"}},
			{"number of uploads", &files.FullError{Limit: "input_files"}},
			{"queue", queue.ErrFull},
			{"bytes", queue.ErrFullBytes},
			{"fetching", submit.ErrFetching},
			{"storage", files.ErrStorage},
			{"callback", refusal.Callback("callback_url: must be a URL")},
			{"callbacks", queue.ErrCallbacksFull},
			{"callbacks of a tenant", queue.ErrTenantCallbacksFull},
			{"prompt", &catalog.Answer{Status: 400, ContentType: "application/json; charset=utf-8", Body: []byte(unfit)}},
			{"prompt without a word", &catalog.Answer{Status: 500, ContentType: "text/plain; charset=utf-8", Body: []byte("500 Internal Server Error")}},
			{"prompt at an instance", catalog.AtInstance([]byte(unfit))},
			{"long answer of an instance", catalog.AtInstance([]byte(strings.Replace(unfit, "too small", strings.Repeat("small", 300_000), 1)))},
			{"memory", budget.ErrFull},
			{"start", catalog.ErrUnknown},
			{"keys", keyring.ErrUnavailable},
			{"Redis", redis.ErrUnavailable},
			{"other", errors.New("other")},
		} {
			for _, d := range dialects {
				if strings.HasPrefix(refused.name, "callback") && (d.name == "comfyv2" || d.name == "sdapi") {
					continue // they take none
				}
				err = refused.err
				before, counted := len(log.String()), b.limitsReached()
				resp := must(http.Post(b.web.URL+d.path, "application/json", strings.NewReader(d.body)))(t)
				status, body := read(t, resp)
				fmt.Fprintf(&out, "== %s, %s: %d\n", refused.name, d.name, status)
				for _, name := range []string{"Connection", "Content-Length", "Content-Type", "Retry-After"} {
					if v := resp.Header.Get(name); v != "" {
						fmt.Fprintf(&out, "%s: %s\n", name, v)
					}
				}
				fmt.Fprintf(&out, "%.500s\n", body)
				for line := range strings.Lines(log.String()[before:]) {
					if _, text, ok := strings.Cut(line, " level="); ok && !strings.HasPrefix(text, "INFO") && !strings.HasPrefix(text, "DEBUG") {
						out.WriteString("log " + text)
					}
				}
				for _, line := range b.limitsReached() {
					if !slices.Contains(counted, line) {
						out.WriteString("counted " + line + "\n")
					}
				}
				fmt.Fprintf(&out, "noted %.100q\n\n", <-noted)
			}
		}
		path := filepath.Join("testdata", "refusals.txt")
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o600))
		}
		require.Equal(t, string(must(os.ReadFile(path))(t)), out.String())
	})
}

// limitsReached returns the counters of refusals by tenants' limits.
func (b *bench) limitsReached() (all []string) {
	for series, n := range b.series() {
		if strings.HasPrefix(series, "comfyhub_tenant_limit_refusals_total") {
			all = append(all, fmt.Sprintf("%s %g", series, n))
		}
	}
	return all
}

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
