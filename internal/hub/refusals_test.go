package hub

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		b.hub.submitter.Put = func(context.Context, queue.Submission) (queue.Accepted, error) {
			return queue.Accepted{}, fmt.Errorf("around: %w", err)
		}
		noted := make(chan string, 1)
		b.hub.submitter.Refused = func(_ job.Requester, err error) { noted <- metrics.RefusalText(err) }
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
