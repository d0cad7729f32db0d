package hub_test

import (
	"encoding/csv"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// series returns what Prometheus reads from the hub.
func (b *bench) series() map[string]float64 {
	b.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, c := range b.hub.Metrics.Collectors() {
		require.NoError(b.t, registry.Register(c))
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(b.t, 200, w.Code, w.Body)
	series := map[string]float64{}
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value := must(strconv.ParseFloat(strings.TrimSpace(line[at:]), 64))(b.t)
		series[line[:at]] = value
	}
	return series
}

// metric returns the value of one series; 0 if there is none.
func (b *bench) metric(name string) float64 {
	b.t.Helper()
	return b.series()[name]
}

func TestMetricsOfAJob(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	name := b.hub.Fleet.Instances()[0].Name
	b.dial("ann")
	id := b.submit(picture(1), "ann")
	require.Equal(t, "success", b.finished(id).Status.Text)
	gpu := metricsGPU(b)
	require.NotEmpty(t, gpu)
	for series, least := range map[string]float64{
		`comfyhub_jobs_total{outcome="done"}`:                                        1,
		`comfyhub_job_wait_seconds_count{gpu="` + gpu + `"}`:                         1,
		`comfyhub_dispatch_gap_seconds_count{gpu="` + gpu + `"}`:                     1,
		`comfyhub_job_run_seconds_count{gpu="` + gpu + `",outcome="done"}`:           1,
		`comfyhub_job_duration_seconds_count{gpu="` + gpu + `",outcome="done"}`:      1,
		`comfyhub_redis_request_seconds_count{kind="read"}`:                          1,
		`comfyhub_redis_request_seconds_count{kind="write"}`:                         1,
		`comfyhub_event_lag_seconds_count`:                                           1,
		`comfyhub_socket_sent_bytes_total`:                                           100,
		`comfyhub_output_bytes_total`:                                                100,
		`comfyhub_catalog_classes`:                                                   10,
		`comfyhub_instance_vram_free_bytes{gpu="` + gpu + `",server="` + name + `"}`: 1,
		`comfyhub_gpu_vram_bytes{gpu="` + gpu + `"}`:                                 1,
		`comfyhub_disk_free_bytes{folder="data"}`:                                    1,
		`comfyhub_disk_size_bytes{folder="storage"}`:                                 1,
		`comfyhub_build_info{version="` + config.Version + `"}`:                      1,
	} {
		eventually(t, func() bool { return b.metric(series) >= least }, time.Minute, 20*time.Millisecond, series)
	}
	require.Positive(t, b.metric(`comfyhub_gpu_seconds_total{band="normal",server="`+name+`"}`))
	require.Zero(t, b.metric(`comfyhub_redis_request_errors_total{kind="write",reason="other"}`))
	for series := range b.series() {
		require.NotContains(t, series, id, "no label names a job")
		require.NotContains(t, series, `"ann"`, "no label names a user")
	}
}

// metricsGPU is the class of the bench's GPU.
func metricsGPU(b *bench) string {
	for series := range b.series() {
		if gpu, ok := strings.CutPrefix(series, `comfyhub_gpu_vram_bytes{gpu="`); ok {
			return strings.TrimSuffix(gpu, `"}`)
		}
	}
	return ""
}

var (
	metricName = regexp.MustCompile(`\bcomfyhub_[a-z0-9_]+`)
	fqName     = regexp.MustCompile(`fqName: "([^"]+)"`)
)

// metricNames are the names of all metrics of a hub.
func metricNames() map[string]bool {
	descs := make(chan *prometheus.Desc, 1000)
	for _, c := range hub.New(config.Identity{}).Metrics.Collectors() {
		c.Describe(descs)
	}
	close(descs)
	names := map[string]bool{}
	for d := range descs {
		names[fqName.FindStringSubmatch(d.String())[1]] = true
	}
	return names
}

// Each metric is documented, and everything that dashboards, alert rules and docs name exists. The
// agent and the bridge check their own.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	names := metricNames()
	require.Greater(t, len(names), 30)
	named := map[string]string{} // and where
	var files []string
	for _, pattern := range []string{"docs/metrics.md", "docs/alerts.md", "docker/*.yml", "docker/*/*.yml", "docker/*/*.yaml", "docker/grafana/dashboards/*.json"} {
		found := must(filepath.Glob(filepath.Join("..", "..", pattern)))(t)
		files = append(files, found...)
	}
	for _, file := range files {
		text := must(os.ReadFile(file))(t)
		for _, name := range metricName.FindAllString(string(text), -1) {
			if strings.HasPrefix(name, "comfyhub_bridge_") || strings.HasPrefix(name, "comfyhub_agent_") || strings.HasSuffix(name, "_") {
				continue
			}
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, ok := strings.CutSuffix(name, suffix); ok && names[base] {
					name = base
				}
			}
			named[name] = file
		}
	}
	for name, file := range named {
		require.True(t, names[name], "%s names %s", file, name)
	}
	page := must(os.ReadFile("../../docs/metrics.md"))(t)
	for name := range names {
		require.Contains(t, string(page), "`"+name, "docs/metrics.md says what it is")
	}
}

// usageRow is a row of GET /hub/usage.
type usageRow struct {
	Day, Tenant             string
	Done, Failed, Cancelled int
	GPUSeconds              float64 `json:"gpu_seconds"`
	OutputBytes             int64   `json:"output_bytes"`
}

func (b *bench) usage(tenant, query string) map[string]usageRow {
	b.t.Helper()
	text := b.acts(tenant, "GET", "/hub/usage"+query, "")
	answer := decoded[struct{ Usage []usageRow }](b.t, text)
	sums := map[string]usageRow{}
	for _, row := range answer.Usage { // two, if the day changes meanwhile
		must(time.Parse(time.DateOnly, row.Day))(b.t)
		have := sums[row.Tenant]
		sums[row.Tenant] = usageRow{
			Tenant: row.Tenant, Done: have.Done + row.Done, Failed: have.Failed + row.Failed, Cancelled: have.Cancelled + row.Cancelled,
			GPUSeconds: have.GPUSeconds + row.GPUSeconds, OutputBytes: have.OutputBytes + row.OutputBytes,
		}
	}
	return sums
}

// What each tenant has used can be read: by the tenant itself, and for everybody by an operator.
func TestUsageOfTenants(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{}, func(b *bench) {
			b.settings.Operators = []string{"root"}
			b.instances = append(b.instances, newInstance(t, sim.Config{}))
		})
		run := func(tenant, graph string) {
			t.Helper()
			status, answer := b.as(tenant, "POST", "/hub/v1/submit", fmt.Sprintf(`{"workflow": %s}`, graph))
			require.Less(t, status, 300, answer)
		}
		run("ann", picture(1))
		run("ann", picture(2))
		run("ann", work(1, 3, "error"))
		run("=cmd", picture(4))
		eventually(t, func() bool {
			all := b.usage("root", "")
			return all["ann"].Done == 2 && all["ann"].Failed == 1 && all["ann"].OutputBytes > 0 && all["=cmd"].Done == 1
		}, time.Minute, 10*time.Millisecond)
		ann := b.usage("ann", "")["ann"]
		require.Positive(t, ann.GPUSeconds)
		require.Zero(t, ann.Cancelled)
		require.Len(t, b.usage("ann", ""), 1)
		require.Equal(t, map[string]usageRow{"ann": ann}, b.usage("root", "?tenant=ann"))
		require.Equal(t, map[string]usageRow{"ann": ann}, b.usage("ann", "?tenant=%3Dcmd"), "others cannot ask for somebody else")
		require.Empty(t, b.usage("bob", ""))
		require.Empty(t, b.usage("bob", "?tenant=ann"))
		require.Empty(t, b.usage("root", "?tenant="), "nobody is not everybody")
		require.Empty(t, b.usage("root", "?from=2025-01-01&to=2025-02-01"))

		text := b.acts("root", "GET", "/hub/usage?format=csv", "")
		rows := must(csv.NewReader(strings.NewReader(text)).ReadAll())(t)
		require.Equal(t, []string{"day", "tenant", "done", "failed", "cancelled", "gpu_seconds", "output_bytes", "overflow_cost"}, rows[0])
		require.Contains(t, text, ",'=cmd,", "a name is no formula")
		for _, query := range []string{"?from=yesterday", "?to=2026", "?from=2026-02-01&to=2026-01-01", "?from=2020-01-01&to=2026-01-01", "?format=xml"} {
			require.Equal(t, http.StatusBadRequest, statusOf(b.as("ann", "GET", "/hub/usage"+query, "")), query)
		}
	})
}

// The audit log says who did what, and nothing of prompts and secrets.
func TestAudit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log := &logtest.Log{}
		b := newBench(t, 1, withKeys(api.KeysRequired), func(b *bench) {
			b.settings.Audit = slog.New(slog.NewTextHandler(log, nil))
		})
		admin := b.key(apikeys.Wanted{Name: "boss", Tenant: "root", Scopes: []apikeys.Scope{apikeys.Admin}})
		reader := b.key(apikeys.Wanted{Name: "reader", Tenant: "ann", Scopes: []apikeys.Scope{apikeys.Read}})
		wrong := b.key(apikeys.Wanted{Name: "gone"})
		must(b.hub.Keys.Revoke(t.Context(), "gone"))(t)
		for _, c := range []struct {
			secret, method, path, body string
			want                       []string
		}{
			{admin, "POST", "/hub/pause?tenant=ann", "", []string{`action="POST /hub/pause"`, "of_tenant=ann", "tenant=root", "key=boss", "operator=true", "status=200", "address=127.0.0.1"}},
			{admin, "POST", "/hub/drain?instance=nobody", "", []string{`action="POST /hub/drain"`, "of_instance=nobody", "status=404"}},
			{admin, "POST", "/hub/jobs/of-ann/cancel?tenant=ann", "", []string{"job=of-ann", "of_tenant=ann"}},
			{admin, "POST", "/history", `{"clear": true}`, []string{`action="POST /history"`}},
			{admin, "DELETE", "/api/userdata/my%20secret.json", "", []string{`action="DELETE /api/userdata/*"`, "status=404"}},
			{reader, "POST", "/prompt", "{}", []string{"key without the scope", "key=reader", "tenant=ann", "scope=submit"}},
			{wrong, "GET", "/queue", "", []string{"wrong key", "status=401"}},
		} {
			before := log.String()
			b.ask(c.method, c.path, c.body, bearer(c.secret))
			line := strings.TrimPrefix(log.String(), before)
			require.Equal(t, 1, strings.Count(line, "\n"), "%s %s: %s", c.method, c.path, line)
			for _, want := range c.want {
				require.Contains(t, line, want, c.path)
			}
		}
		before := log.String()
		b.ask("POST", "/prompt", `{"prompt": `+picture(1)+`}`, bearer(admin))
		b.ask("GET", "/history", "", bearer(admin))
		require.Equal(t, before, log.String(), "daily work is no deed")
		for _, secret := range []string{admin[9:30], reader[9:30], wrong[9:30], "my secret", "EmptyImage"} {
			require.NotContains(t, log.String(), secret)
		}
	})
}
