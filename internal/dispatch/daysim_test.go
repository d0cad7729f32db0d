package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// daySim is the scheduler alone: the dispatcher's pass with its Pick and its learning,
// and the queue with its scripts on the embedded server. Only the servers and the clock
// are simulated; it must run in a bubble of synctest.
type daySim struct {
	*Dispatcher
	daySpec daySpec
	t       *testing.T
	began   time.Time
	servers []*dayServer
	byName  map[string]*dayServer
	waiting map[string]*dayJob
	// counts is the number of waiting jobs by tenant, priority and class.
	counts map[dayGroup]int
	// kinds are the kinds of the jobs so far, by class.
	kinds map[string]*dayKind
	// ends are the busy servers, by when they finish.
	ends   []*dayServer
	given  []dayGiven
	lineAt time.Time
	// wakeAt is when a job has waited long enough for a busy server.
	wakeAt time.Time
	dayResult
}

type dayServer struct {
	number  int
	name    string
	info    *catalog.Info
	running *dayJob
	loaded  string
	client  string
	ends    time.Time
}

type dayJob struct {
	arrival
	key     string
	run     job.Run
	shape   string
	began   time.Time
	cold    bool
	started time.Duration
}

type dayGroup struct {
	tenant   string
	priority int
	class    string
}

// dayGiven is a job that was given out in the pass under way.
type dayGiven struct {
	job    *dayJob
	server *dayServer
}

// dayResult is the outcome of a simulation.
type dayResult struct {
	waits dayWaits
	// switches is how many runs had to load their model.
	switches int
	// saved is how many had not, because the hub looked for a server that has it.
	saved int
	// used is how much of the servers' time each tenant used, over all runs that began.
	used map[string]time.Duration
	// order is a hash of which job began where and when, in order.
	order uint64
}

// simulate lets the prompts arrive. It ends when all have run or, with cut, when no more arrive.
func (s daySpec) simulate(t *testing.T, cut bool, settings Settings) dayResult {
	return s.simulateThese(t, s.arrivals(), cut, settings)
}

// simulateThese is simulate for given prompts.
func (s daySpec) simulateThese(t *testing.T, list []arrival, cut bool, settings Settings) (result dayResult) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaySim(t, s, settings)
		result = d.replay(list, cut)
	})
	return result
}

func newDaySim(t *testing.T, s daySpec, settings Settings) *daySim {
	q := must(queue.New(redistest.OpenDir(t, ""), queue.Options{HistoryEntries: 1, MaxQueue: 1_000_000}))
	q.SetLimits(queue.Limits{HistoryEntries: 1, MaxQueue: 1_000_000, Weight: func(tenant string) float64 {
		if w, own := s.weights[tenant]; own {
			return w
		}
		return 1
	}})
	registry := fleet.NewRegistry()
	d := &daySim{
		daySpec: s, t: t, began: time.Now(), byName: map[string]*dayServer{}, waiting: map[string]*dayJob{}, counts: map[dayGroup]int{},
		kinds:     map[string]*dayKind{},
		dayResult: dayResult{used: map[string]time.Duration{}, order: 14695981039346656037},
		Dispatcher: New(Config{
			Queue: q, Fleet: registry, Hub: "hub/1", HubID: "hub", Logger: slog.New(slog.DiscardHandler),
			Settings: func() Settings { return settings },
		}),
	}
	library := catalog.NewLibrary()
	for n := range s.servers {
		names, gpu := s.modelNames(), "fast"
		classes := []string{"Picture", "Video"}
		if s.slow(n) {
			classes, gpu = classes[:1], "slow"
		}
		info := must(library.Parse(objectInfo(names, classes)))
		url := fmt.Sprintf("http://10.0.%d.%d:8188", n/250, n%250)
		name := must(registry.AddStatic(url))
		registry.Observe(fleet.InstanceReport{Name: name, URL: url, Direct: true, Kind: fleet.KindComfyUI, Up: true, Boot: 1, GPU: gpu})
		server := &dayServer{number: n, name: name, info: info}
		d.servers, d.byName[name] = append(d.servers, server), server
	}
	return d
}

// objectInfo is the /object_info of a server with some models and classes.
func objectInfo(models, classes []string) []byte {
	const class = `%q:{"input":{"required":{%s}},"output":["IMAGE"],"output_is_list":[false],"output_name":["IMAGE"],"name":%q,"output_node":true}`
	list := fmt.Sprintf(`"model":[["%s"]]`, strings.Join(models, `","`))
	parts := []string{fmt.Sprintf(class, "Loader", list, "Loader")}
	for _, name := range classes {
		parts = append(parts, fmt.Sprintf(class, name, `"made":["IMAGE"]`, name))
	}
	return []byte("{" + strings.Join(parts, ",") + "}")
}

// replay lets prompts arrive and servers finish their runs until there is nothing left to do.
func (d *daySim) replay(list []arrival, cut bool) dayResult {
	ctx := d.t.Context()
	for at := 0; at < len(list) || !cut && len(d.ends) > 0; {
		next := time.Time{}
		if at < len(list) {
			next = d.began.Add(list[at].at)
		}
		if len(d.ends) > 0 && (next.IsZero() || d.ends[0].ends.Before(next)) {
			next = d.ends[0].ends
		}
		if !d.wakeAt.IsZero() && d.wakeAt.Before(next) {
			next = d.wakeAt
		}
		time.Sleep(time.Until(next))
		for len(d.ends) > 0 && !d.ends[0].ends.After(next) {
			first := d.ends[0]
			d.ends = d.ends[1:]
			d.end(ctx, first)
		}
		for at < len(list) && !d.began.Add(list[at].at).After(next) {
			d.post(ctx, at, list[at])
			at++
		}
		if next.Sub(d.lineAt) >= readAgain {
			d.lineAt = next
			d.line.read(ctx)
		}
		d.look(ctx)
	}
	if !cut {
		require.Empty(d.t, d.waiting, "jobs that never ran")
	}
	return d.dayResult
}

func (d *daySim) post(ctx context.Context, n int, a arrival) {
	j := &dayJob{arrival: a, key: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), shape: schedule.Shape(a.kind.graph)}
	accepted := must(d.Queue.Enqueue(ctx, queue.Submission{
		Key: j.key, ID: j.key, Requester: job.Requester{Tenant: a.tenant, Caller: a.caller, Client: a.caller},
		Class: a.kind.class, Shape: j.shape, Priority: a.priority, BodyHash: j.key,
		Body: job.Body{Prompt: []byte("{}"), Extra: []byte("{}"), Requires: a.kind.requires},
	}))
	d.line.join(inLine(accepted.Job), accepted.Position)
	d.waiting[j.key] = j
	d.counts[j.group()]++
	d.kinds[a.kind.class] = a.kind
}

func (j *dayJob) group() dayGroup { return dayGroup{j.tenant, j.priority, j.kind.class} }

// look is the dispatcher's pass over the idle servers.
func (d *daySim) look(ctx context.Context) {
	if len(d.waiting) == 0 {
		return
	}
	d.given = d.given[:0]
	p := pass{placer: d.placer, passed: map[string]bool{}, taken: map[string]bool{}, capped: map[string]bool{}, held: map[string]bool{}, left: new(int), soon: d.soonServers}
	p.claim = func(p pass, ctx context.Context, pair schedule.Placement) error { return d.give(ctx, p.left, pair) }
	d.wakeAt = time.Time{}
	for {
		idle, infos := d.idleServers()
		if len(idle) == 0 {
			break
		}
		l := must(p.fill(ctx, idle, infos))
		if !l.again || l.nothing {
			if l.next > 0 {
				d.wakeAt = time.Now().Add(l.next)
			}
			break
		}
	}
	d.check()
}

func (d *daySim) idleServers() (idle []schedule.Idle, infos []*catalog.Info) {
	for _, s := range d.servers {
		if s.running != nil {
			continue
		}
		i := schedule.Idle{Name: s.name, LastClient: s.client, Refused: map[string]bool{}}
		if s.loaded != "" {
			i.Loaded = []string{s.loaded}
		}
		idle, infos = append(idle, i), append(infos, s.info)
	}
	return idle, infos
}

// soonServers is Dispatcher.soon.
func (d *daySim) soonServers() (list []schedule.Soon) {
	var idle []schedule.Idle
	var infos []*catalog.Info
	for _, s := range d.servers {
		if s.running == nil {
			continue
		}
		e := d.durations.Estimate(s.running.shape, d.reports.Gpu(s.name))
		if !e.Certain() {
			continue
		}
		if s.running.cold {
			e.Ran += e.Load
		}
		list = append(list, schedule.Soon{
			Idle: schedule.Idle{Name: s.name, Loaded: []string{s.loaded}},
			Free: schedule.Remaining(e.Ran, time.Since(s.running.began)),
		})
		idle, infos = append(idle, list[len(list)-1].Idle), append(infos, s.info)
	}
	d.judged.able(idle, infos, d.requirements.met)
	for n := range list {
		list[n].Idle = idle[n]
	}
	return list
}

// give claims a job as pass.give does, and starts it.
func (d *daySim) give(ctx context.Context, left *int, pair schedule.Placement) error {
	s, j := d.byName[pair.Instance], d.waiting[pair.Job.Key]
	require.NotNil(d.t, j, "a job that does not wait")
	require.Nil(d.t, s.running, "a server that is busy")
	require.True(d.t, d.daySpec.able(s.number, j.kind), "a server that cannot run it")
	claimed, classes, err := d.Queue.ClaimCounting(ctx, queue.ClaimRequest{
		Key: j.key, Tenant: j.tenant, Instance: s.name, Hub: d.Hub, Upstream: j.key, SID: "sid", Cost: d.durations.Cost(j.shape, s.name),
	})
	require.NoError(d.t, err)
	*left = classes
	d.line.leave(j.key)
	begins := time.Now()
	took := d.daySpec.lasting(s.number, j.arrival, s.loaded)
	if j.cold = s.loaded != j.kind.model; j.cold {
		d.switches++
	}
	if pair.Saves {
		require.False(d.t, j.cold, "a load that was made counts as saved")
		d.saved++
	}
	d.used[j.tenant] += took
	j.run, j.began, j.started = claimed.Run, begins, begins.Sub(d.began)
	d.waits.add(j.arrival, j.started-j.at)
	s.running, s.loaded, s.client, s.ends = j, j.kind.model, j.caller, begins.Add(took)
	at, _ := slices.BinarySearchFunc(d.ends, s, byEnd)
	d.ends = slices.Insert(d.ends, at, s)
	delete(d.waiting, j.key)
	d.counts[j.group()]--
	d.given = append(d.given, dayGiven{j, s})
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, d.dayResult.order, j.key, s.number, j.started)
	d.dayResult.order = h.Sum64()
	return nil
}

// end ends the run of a server and tells the hub how long it took.
func (d *daySim) end(ctx context.Context, s *dayServer) {
	j := s.running
	s.running = nil
	require.NoError(d.t, d.Queue.Finish(ctx, j.run, queue.Outcome{State: job.Done, Entry: []byte("{}")}))
	st, ok := schedule.DecodeStructure(j.shape)
	require.True(d.t, ok)
	d.durations.Known.Add(
		schedule.Pair{Structure: st.Key, Kind: st.Kind, GPU: d.reports.Gpu(s.name)},
		schedule.Sample{Work: st.Work, Ran: time.Since(j.began), Cold: j.cold},
	)
}

// check asserts the laws of a pass: no server stays idle beside a job that it can run, unless the
// job is waiting for one with its model loaded, and no job has got a server while a job of the same
// tenant with a higher priority that could run there is waiting.
func (d *daySim) check() {
	held := map[dayGroup]int{}
	for key, j := range d.waiting {
		if d.Forecasts.WaitsFor(key) != "" {
			held[j.group()]++
		}
	}
	for group, count := range d.counts {
		if count == 0 {
			delete(d.counts, group)
			continue
		}
		if count == held[group] {
			continue
		}
		for _, s := range d.servers {
			if s.running == nil {
				require.False(d.t, d.canRun(s, group.class), "a job waits beside an idle server")
			}
		}
		for _, g := range d.given {
			require.False(d.t, g.job.tenant == group.tenant && g.job.priority < group.priority && d.canRun(g.server, group.class),
				"a lower priority went first")
		}
	}
}

func (d *daySim) canRun(s *dayServer, class string) bool {
	return d.daySpec.able(s.number, d.kinds[class])
}

// byEnd sorts servers by when they finish.
func byEnd(a, b *dayServer) int {
	return cmp.Or(a.ends.Compare(b.ends), cmp.Compare(a.number, b.number))
}
