package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/run"
)

var (
	_ run.Observer = (*Metrics)(nil)
	_ interface {
		Sent(bytes int)
		Lagged(lag time.Duration)
	} = (*Metrics)(nil)
)

// stage is a fleet with measurements.
type stage struct {
	*Metrics
	instances map[string]fleet.Instance
	registry  *prometheus.Registry
}

// newStage is for a test that runs beside others.
func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	s := &stage{instances: map[string]fleet.Instance{}, registry: prometheus.NewPedanticRegistry()}
	s.Metrics = New(func(name string) (fleet.Instance, bool) {
		i, ok := s.instances[name]
		return i, ok
	}, func(context.Context) State { return State{Serves: true, Instances: s.list()} })
	for _, c := range s.Collectors() {
		require.NoError(t, s.registry.Register(c))
	}
	return s
}

func (s *stage) list() []fleet.Instance {
	var list []fleet.Instance
	for _, i := range s.instances {
		list = append(list, i)
	}
	return list
}

func (s *stage) add(name, gpu string) {
	s.instances[name] = fleet.Instance{Name: name, URL: "http://" + name, State: fleet.Idle, Report: fleet.InstanceReport{
		Name: name, GPU: gpu, VRAMTotal: 24 << 30, VRAMFree: 20 << 30,
	}}
}

// scrape returns the series that Prometheus reads.
func (s *stage) scrape() []string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var series []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			series = append(series, strings.TrimSpace(line))
		}
	}
	return series
}

// with returns the series that have a text.
func with(series []string, text string) (found []string) {
	for _, line := range series {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// work lets all that can happen to a job happen at an instance.
func (s *stage) work(instance string) {
	for _, band := range []job.Band{job.Interactive, job.Normal, job.Bulk} {
		for _, outcome := range Outcomes() {
			s.Dispatched(instance, time.Second, time.Millisecond)
			s.Switched(instance, false)
			s.Switched(instance, true)
			s.Finished(run.End{Instance: instance, Band: band, Outcome: outcome, Ran: time.Second, Took: 2 * time.Second})
		}
	}
}

// busiest is a fleet of 500 instances at which everything has happened that can, with more
// kinds of GPU than are told apart.
func busiest(t *testing.T) *stage {
	s := newStage(t)
	for n := range 500 {
		name := fmt.Sprintf("gpu-%d", n)
		s.add(name, fmt.Sprintf("cuda:0 NVIDIA GeForce RTX %d : cudaMallocAsync", 1000+n%40*10))
		s.work(name)
	}
	for _, c := range run.Causes() {
		s.Retried(c)
	}
	for _, o := range run.Origins() {
		s.Adopted(o)
	}
	for _, write := range []bool{false, true} {
		s.Asked(redis.Request{Write: write, Took: time.Millisecond, Err: errors.New("no")})
	}
	return s
}

func TestSeriesOf500Instances(t *testing.T) {
	s := busiest(t)
	series := s.scrape()
	t.Logf("%d series", len(series))
	require.Less(t, len(series), 4900, "the rest of the hub's have 100")
	require.Len(t, with(series, "comfyhub_gpu_seconds_total{"), 1500)
	require.Len(t, with(series, "comfyhub_instance_vram_free_bytes{"), 500)
	require.Len(t, with(series, "comfyhub_gpu_vram_bytes{"), MaxGPUs+1)
	require.Len(t, with(series, `comfyhub_job_wait_seconds_count{gpu="other"}`), 1)
}

// A machine that says of itself what it likes makes no more series than its place allows,
// takes no place from those that were there, and leaves nothing behind.
func TestSeriesOfAHostileMachine(t *testing.T) {
	s := newStage(t)
	s.add("honest", "cuda:0 NVIDIA GeForce RTX 4090 : native")
	s.work("honest")
	honest := len(s.scrape())
	for n := range 5000 {
		name := fmt.Sprintf("evil-%d", n)
		s.add(name, fmt.Sprintf("cuda:0 %d\"\n{}%s", n, strings.Repeat("x", 300)))
		s.work(name)
	}
	series := s.scrape()
	require.Less(t, len(series), 5000+MaxInstances*2)
	require.NotEmpty(t, with(series, `server="honest"`))
	require.NotEmpty(t, with(series, `comfyhub_job_wait_seconds_count{gpu="RTX 4090"} 15`))
	require.NotEmpty(t, with(series, `comfyhub_gpu_seconds_total{band="bulk",server="other"}`))
	for name := range s.instances {
		if name != "honest" {
			delete(s.instances, name)
		}
	}
	s.scrape()
	series = s.scrape()
	require.Empty(t, with(series, "evil"))
	require.LessOrEqual(t, len(with(series, "")), honest+200, "and what was counted as other")
	s.add("late", "L40S")
	s.work("late")
	require.NotEmpty(t, with(s.scrape(), `comfyhub_job_wait_seconds_count{gpu="L40S"} 15`), "its place is free again")
}

func TestWhatIsUnavailable(t *testing.T) {
	s := newStage(t)
	s.add("a", "L4")
	s.add("b", "L4")
	for _, tt := range []struct {
		state fleet.State
		left  bool
		want  []string
		aside bool
	}{
		{state: fleet.Idle},
		{state: fleet.Busy},
		{state: fleet.Draining},
		{fleet.Offline, false, []string{`comfyhub_instance_unavailable{server="a",state="offline"} 1`}, false},
		{state: fleet.Offline, left: true},
		{fleet.Sick, false, []string{`comfyhub_instance_unavailable{server="a",state="sick"} 1`}, false},
		{fleet.Sick, false, []string{`comfyhub_instance_unavailable{server="a",state="aside"} 1`}, true},
	} {
		i := s.instances["a"]
		i.State, i.Left, i.Aside = tt.state, tt.left, tt.aside
		s.instances["a"] = i
		require.Equal(t, tt.want, with(s.scrape(), "comfyhub_instance_unavailable{"), tt.state)
	}
}

// Instances that share a GPU have its memory once.
func TestSharedMemoryCountsOnce(t *testing.T) {
	s := newStage(t)
	for name, device := range map[string]string{"a": "GPU-1", "b": "GPU-1", "c": "0", "d": "0", "e": ""} {
		s.add(name, "L4")
		i := s.instances[name]
		i.Agent, i.Report.Device = "agent", device
		if name == "d" {
			i.Agent = "another" // its GPU 0 is another one
		}
		s.instances[name] = i
	}
	require.Equal(t, []string{fmt.Sprintf(`comfyhub_gpu_vram_bytes{gpu="L4"} %v`, float64(4*24<<30))}, with(s.scrape(), "comfyhub_gpu_vram_bytes{"))
}

func TestHistogramsAreAlsoNative(t *testing.T) {
	s := newStage(t)
	s.add("a", "L4")
	s.work("a")
	s.Asked(redis.Request{Took: time.Millisecond})
	s.Lagged(time.Millisecond)
	families, err := s.registry.Gather()
	require.NoError(t, err)
	count := 0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if h := metric.GetHistogram(); h != nil && h.GetSampleCount() > 0 {
				count++
				require.NotEmpty(t, h.GetPositiveSpan(), family.GetName())
				require.Greater(t, len(h.GetBucket()), 10, family.GetName())
			}
		}
	}
	require.Equal(t, 2+4+3+2, count)
}

func TestRequestsToRedis(t *testing.T) {
	s := newStage(t)
	s.Asked(redis.Request{Took: time.Millisecond})
	s.Asked(redis.Request{Write: true, Took: time.Millisecond, Err: fmt.Errorf("x: %w", redis.ErrUnavailable)})
	s.Asked(redis.Request{Write: true, Took: time.Millisecond, Err: errors.New("a fault of a script")})
	require.Equal(t, []string{
		`comfyhub_redis_request_errors_total{kind="read",reason="other"} 0`,
		`comfyhub_redis_request_errors_total{kind="read",reason="unavailable"} 0`,
		`comfyhub_redis_request_errors_total{kind="write",reason="other"} 1`,
		`comfyhub_redis_request_errors_total{kind="write",reason="unavailable"} 1`,
	}, with(s.scrape(), "comfyhub_redis_request_errors_total{"))
	require.NotEmpty(t, with(s.scrape(), `comfyhub_redis_request_seconds_count{kind="write"} 2`))
}

func TestGPUClass(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync": "RTX 4090",
		"cuda:1 NVIDIA GeForce RTX 3080 Ti : native":       "RTX 3080 Ti",
		"cuda:0 NVIDIA A100-SXM4-80GB : cudaMallocAsync":   "A100-SXM4-80GB",
		"cuda:0 AMD Radeon RX 7900 XTX : native":           "RX 7900 XTX",
		"cpu":                                              "cpu",
		"mps":                                              "mps",
		"":                                                 unknownGPU,
		"cuda:0 \x00":                                      unknownGPU,
		"NVIDIA GeForce":                                   unknownGPU,
	} {
		require.Equal(t, want, GPUClass(name), name)
	}
}

func FuzzGPUClass(f *testing.F) {
	for _, seed := range []string{"", "cuda:0 NVIDIA L4 : native", "a b", "\xff\xfe x", strings.Repeat("w ", 100), strings.Repeat("x", 39) + " y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		class := GPUClass(name)
		if class == "" || len(class) > maxClass || strings.Trim(class, " ") != class {
			t.Fatalf("%q becomes %q", name, class)
		}
		if again := GPUClass(class); len(again) > maxClass {
			t.Fatalf("%q becomes %q", class, again)
		}
	})
}

func TestSpaceOfADisk(t *testing.T) {
	t.Parallel()
	d := NewDisk("data", t.TempDir())
	_, _, ok := d.Space()
	require.False(t, ok, "not read yet")
	d.update()
	free, size, ok := d.Space()
	if !ok {
		t.Skip("this system does not tell")
	}
	require.Positive(t, size)
	require.LessOrEqual(t, free, size)
	d.read = time.Now().Add(-2 * spaceLasts)
	_, _, ok = d.Space()
	require.False(t, ok, "it has not answered for long")
	d.path += "/nowhere"
	d.update()
	_, _, ok = d.Space()
	require.False(t, ok)
}

// What other programs hold is told of the servers where it is the most.
func TestMemoryOfOthers(t *testing.T) {
	s := newStage(t)
	for n := range 200 {
		name := fmt.Sprintf("gpu-%d", n)
		s.add(name, "cuda:0 NVIDIA GeForce RTX 4090 : native")
		i := s.instances[name]
		i.Report.OthersMemory = int64(n) << 20
		s.instances[name] = i
	}
	series := s.scrape()
	require.Len(t, with(series, "comfyhub_instance_vram_others_bytes{"), maxMost)
	require.Len(t, with(series, `comfyhub_instance_vram_others_bytes{gpu="RTX 4090",server="gpu-199"} `), 1)
	require.Empty(t, with(series, `comfyhub_instance_vram_others_bytes{gpu="RTX 4090",server="gpu-1"} `))
	require.Len(t, with(series, "comfyhub_gpu_vram_others_bytes{"), 1)
}

func TestDisksOfServers(t *testing.T) {
	s := newStage(t)
	for n := range 100 {
		name := fmt.Sprintf("gpu-%d", n)
		s.add(name, "cuda:0 NVIDIA GeForce RTX 4090 : native")
		i := s.instances[name]
		i.Report.DiskSize, i.Report.DiskFree, i.Report.DiskFull = 100, int64(n), n < 2
		s.instances[name] = i
	}
	s.add("unknown", "cuda:0 NVIDIA GeForce RTX 4090 : native")
	series := s.scrape()
	require.Len(t, with(series, "comfyhub_instance_disk_free_ratio{"), maxMost)
	require.Len(t, with(series, `comfyhub_instance_disk_free_ratio{server="gpu-0"} 0`), 1)
	require.Empty(t, with(series, `comfyhub_instance_disk_free_ratio{server="gpu-99"}`))
	require.Len(t, with(series, "comfyhub_instance_disk_full{"), 2)
}
