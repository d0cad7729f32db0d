package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// deadline bounds each wait in these tests. A healthy one takes milliseconds.
const deadline = time.Minute

// scripted is a simulated ComfyUI that lets a test write some of its answers.
type scripted struct {
	*sim.Server
	name string
	web  *httptest.Server

	mu     sync.Mutex
	routes map[string]route
}

// route answers a request in place of the instance. next gives the instance's own answer.
type route func(w http.ResponseWriter, r *http.Request, next http.Handler)

func newScripted(t *testing.T) *scripted {
	server := must(sim.New(sim.Config{TimeScale: 0.02, WorkPreview: 8, Models: map[string][]string{"checkpoints": {"a.safetensors"}}}))
	s := &scripted{Server: server, routes: map[string]route{}}
	s.web = loopback.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Method + " " + r.URL.EscapedPath()
		s.mu.Lock()
		var own route
		for prefix, answer := range s.routes {
			if strings.HasPrefix(name, prefix) {
				own = answer
			}
		}
		s.mu.Unlock()
		if own == nil {
			server.Handler().ServeHTTP(w, r)
			return
		}
		own(w, r, server.Handler())
	}))
	t.Cleanup(func() {
		s.Kill()
		s.web.CloseClientConnections()
		s.web.Close()
		s.Server.Close()
	})
	return s
}

// on replaces the answer to requests whose method and path begin with prefix. nil
// restores the instance's own answer.
func (s *scripted) on(prefix string, answer route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer == nil {
		delete(s.routes, prefix)
		return
	}
	s.routes[prefix] = answer
}

// dispatching is a dispatcher over an embedded queue and scripted instances.
type dispatching struct {
	run.Observer
	*Dispatcher
	t *testing.T
	// spoil replaces a part of a job in Redis, "body" or "secret", or deletes it if the value is
	// "". record sets a field of the job's record.
	spoil  func(part, key, value string)
	record func(key, field string, value any)
	// store has the files, in the folder storage.
	store     *files.Store
	storage   string
	fleet     *fleet.Registry
	instances []*scripted

	config Config
	// fetch reads outputs from the instances.
	fetch files.Fetch

	mu       sync.Mutex
	settings Settings
	outcomes []string
	retries  []run.Cause
	log      strings.Builder
}

func newDispatching(t *testing.T, count int, change ...func(*dispatching, *Config)) *dispatching {
	return newDispatchingOn(t, "", nil, count, change...)
}

// newDispatchingOn is newDispatching with the Redis at a URL, "" for the embedded one, and a hook that
// sees its commands.
func newDispatchingOn(t *testing.T, url string, hook goredis.Hook, count int, change ...func(*dispatching, *Config)) *dispatching {
	db := redistest.Embedded(t)
	if url != "" {
		db = redistest.Open(t, url)
	}
	if hook != nil {
		db.Client().AddHook(hook)
	}
	b := &dispatching{Observer: run.Unobserved(), t: t, storage: filepath.Join(t.TempDir(), "storage"), fleet: fleet.NewRegistry(), settings: Settings{
		Settings:   run.Settings{StallTimeout: time.Minute, ContactTimeout: 15 * time.Second, UnrunnableTimeout: time.Hour},
		CatalogAge: time.Hour, Lease: 15 * time.Second,
	}}
	b.spoil = func(part, key, value string) {
		if value == "" {
			require.NoError(t, db.Client().Del(t.Context(), db.Key("q", part, key)).Err())
			return
		}
		require.NoError(t, db.Client().Set(t.Context(), db.Key("q", part, key), value, 0).Err())
	}
	b.record = func(key, field string, value any) {
		require.NoError(t, db.Client().HSet(t.Context(), db.Key("q", "job", key), field, value).Err())
	}
	log := slog.New(slog.NewTextHandler(b, nil))
	q := must(queue.New(db, queue.Options{Lease: b.settings.Lease, Logger: log}))
	connected := comfyui.NewClients()
	storage := must(files.OpenStorage(t.Context(), b.storage))
	b.store = files.New(db, storage, files.Options{SpoolDir: t.TempDir(), Logger: log})
	require.NoError(t, files.NewSharing(db, storage).Check(t.Context(), "hub"))
	watching, unwatch := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() {
		storage.Health().Watch(watching, func() *slog.Logger { return log }, func(error) { b.signal.Wake() })
	})
	b.fetch = files.From(connected)
	fetch := func(ctx context.Context, src files.Source, header http.Header) (*http.Response, error) {
		return b.fetch(ctx, src, header)
	}
	copies := files.NewCollector(b.store, fetch, files.CollectorOptions{Logger: log})
	streams := stream.New(stream.Options{SpillDir: t.TempDir(), Logger: log})
	c := Config{
		Queue: q, Fleet: b.fleet, Streams: streams, Connected: connected, Paused: storage.Health().Err,
		Files: files.NewTransfer(b.store, copies, files.NewHeld(storage), log),
		Connect: func(i fleet.Instance) (*comfyui.Client, error) {
			return comfyui.NewClient(i.URL, comfyui.Options{Dial: loopback.Dial})
		},
		Library: catalog.NewLibrary(), Learned: func(string, *catalog.Info, comfyui.Version) {},
		EndedElsewhere: func(context.Context, queue.Event) {},
		Hub:            "hub/1", HubID: "hub", Observe: b, Logger: log,
		Settings: func() Settings {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.settings
		},
	}
	for _, do := range change {
		do(b, &c)
	}
	for range count {
		b.add(newScripted(t))
	}
	b.config, b.Dispatcher = c, New(c)
	b.rests.first = 200 * time.Millisecond
	b.Start()
	t.Cleanup(func() {
		b.staysUnstuck()
		require.NoError(t, streams.Close(context.Background()))
		b.Dispatcher.Close()
		copies.Close()
		unwatch()
		watch.Wait()
		require.NoError(t, storage.Close())
		if t.Failed() {
			t.Log(b.logged())
		}
	})
	return b
}

// staysUnstuck requires, whatever a test has done, that no job is waiting beside an idle instance
// that can run it. One moment without such a job is enough, because a stuck job stays stuck.
func (b *dispatching) staysUnstuck() {
	if b.t.Failed() {
		return
	}
	eventually(b.t, func() bool {
		stuck, err := b.Watchdog.besideIdle(context.Background(), 0)
		return err != nil || len(stuck) == 0
	}, deadline, 10*time.Millisecond, "jobs are waiting although an idle instance can run them")
}

// add adds an instance to the fleet.
func (b *dispatching) add(s *scripted) {
	name := must(b.fleet.AddStatic(s.web.URL))
	s.name = name
	b.instances = append(b.instances, s)
	b.fleet.Observe(fleet.InstanceReport{Name: name, URL: s.web.URL, Direct: true, Kind: fleet.KindComfyUI, Up: true, Boot: 1})
}

// restart ends the hub's process and starts another one over the same queue. hub names the new one,
// so the lease of a run may belong to another hub.
func (b *dispatching) restart(hub string) {
	b.Dispatcher.Close()
	b.config.HubID, _, _ = strings.Cut(hub, "/")
	b.config.Hub = hub
	b.Dispatcher = New(b.config)
	b.Start()
}

// set changes the settings.
func (b *dispatching) set(change func(*Settings)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.settings)
}

// Write implements io.Writer for the log.
func (b *dispatching) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(line)
}

func (b *dispatching) logged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// Finished implements Observer.
func (b *dispatching) Finished(e run.End) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes = append(b.outcomes, e.Outcome)
}

// Retried implements Observer.
func (b *dispatching) Retried(cause run.Cause) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retries = append(b.retries, cause)
}

// retried returns why jobs ran again so far.
func (b *dispatching) retried() []run.Cause {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]run.Cause(nil), b.retries...)
}

// ends returns the outcomes of the runs so far.
func (b *dispatching) ends() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.outcomes...)
}

// picture is a graph that finishes at once. endless goes on until it is interrupted.
const picture = `{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": 7}},
	"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "ComfyUI"}}}`

const endless = `{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": 7}},
	"3": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 3600, "steps": 720, "fail": "none", "nonce": 1}},
	"2": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "ComfyUI"}}}`

// working is a graph that takes three seconds, so that what a test does to its run comes before the
// end even on a slow machine.
var working = strings.NewReplacer("3600", "150", "720", "20").Replace(endless)

// submission is a job for any instance.
func submission(graph string) queue.Submission {
	needs := catalog.Requirements{Classes: []string{"EmptyImage"}}
	key := uuid.NewString()
	return queue.Submission{
		Key: key, ID: key, Requester: job.Requester{Tenant: job.DefaultTenant, Caller: "caller", Client: "client"},
		Class: needs.Signature(), BodyHash: key,
		Body: job.Body{Prompt: []byte(graph), Extra: []byte("{}"), Outputs: []string{"2"}, Requires: needs.Encode()},
	}
}

// submit queues a job and returns its key.
func (b *dispatching) submit(graph string, change ...func(*queue.Submission)) string {
	s := submission(graph)
	for _, do := range change {
		do(&s)
	}
	must(b.Queue.Enqueue(b.t.Context(), s))
	return s.Key
}

// runs waits until an instance is executing a job.
func (b *dispatching) runs(key string) { b.reaches(key, job.Running) }

// leaves waits until this hub no longer follows a run of a job.
func (b *dispatching) leaves(key string) {
	eventually(b.t, func() bool { return b.Runs.Get(key) == nil }, deadline, 10*time.Millisecond)
}

// Job returns the queue's record of a job.
func (b *dispatching) Job(key string) job.Job { return must(b.Queue.Get(b.t.Context(), key)) }

// reaches waits until a job reaches a state.
func (b *dispatching) reaches(key string, state job.State) job.Job {
	var j job.Job
	eventually(b.t, func() bool {
		var err error
		j, err = b.Queue.Get(b.t.Context(), key)
		return err == nil && j.State == state
	}, deadline, 10*time.Millisecond, "the job does not get to %s", state)
	return j
}

// lost waits until a job has lost a run and returns the reason of the first loss.
func (b *dispatching) lost(key string) string {
	eventually(b.t, func() bool { return len(b.Job(key).Lost) > 0 }, deadline, 10*time.Millisecond)
	return b.Job(key).Lost[0]
}

// entry returns the history entry of an ended job.
func (b *dispatching) entry(key string) comfyui.Entry {
	e := must(b.Queue.HistoryEntry(b.t.Context(), job.DefaultTenant, key))
	raw := must(e.JSON())
	parsed, ok := comfyui.ParseEntry(raw)
	require.True(b.t, ok)
	return parsed
}

// failure returns the message of the error that ended a job.
func (b *dispatching) failure(key string) string {
	b.reaches(key, job.Failed)
	e := b.entry(key)
	require.Equal(b.t, comfyui.TypeExecutionError, e.End)
	return string(e.EndData)
}

// refuse is the answer of an instance that refuses a prompt.
func refuse(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = fmt.Fprint(w, `{"error": {"type": "prompt_outputs_failed_validation", "message": "Prompt outputs failed validation", "details": "", "extra_info": {}},
		"node_errors": {"1": {"errors": [{"type": "custom_validation_failed", "message": "Custom validation failed for node", "details": "width", "extra_info": {}}], "dependent_outputs": ["2"], "class_type": "EmptyImage"}}}`)
}
