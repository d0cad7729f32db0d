package hub

import (
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

	"github.com/comfyhub/comfyhub/internal/config"
)

// series returns what Prometheus reads from the hub.
func (b *bench) series() map[string]float64 {
	b.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, c := range b.hub.Collectors() {
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
	name := b.hub.fleet.Instances()[0].Name
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
	for _, c := range New(config.Identity{}).Collectors() {
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
