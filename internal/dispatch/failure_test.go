package dispatch

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// sized adds an instance with that much GPU memory, in GiB.
func (b *dispatching) sized(gib int64) *scripted {
	s := newScripted(b.t)
	b.add(s)
	b.fleet.Observe(fleet.InstanceReport{Name: s.name, URL: s.web.URL, Direct: true, Kind: fleet.KindComfyUI, Up: true, Boot: 1, VRAMTotal: gib << 30})
	return s
}

func (b *dispatching) connects(count int) {
	eventually(b.t, func() bool { return len(b.Instances.Open()) == count }, deadline, 10*time.Millisecond)
}

// A prompt that runs out of memory goes to an instance with more, and later ones like it go there
// at once.
func TestOutOfMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		until := b.listen()
		small := b.sized(8)
		small.SetFault(sim.Faults{OOMEvery: 1})
		var freed atomic.Int32
		small.on("POST /free", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			freed.Add(1)
			next.ServeHTTP(w, r)
		})
		b.connects(1)
		key := b.submit(endless)
		require.Contains(t, b.failure(key), "torch.OutOfMemoryError", "there is no larger one")
		require.Equal(t, 2, small.Started(), "it is tried again with free memory")
		require.Equal(t, int32(2), freed.Load())

		large := b.sized(24)
		b.connects(2)
		blocker := b.submit(endless)
		b.runs(blocker)
		require.Equal(t, large.name, b.Job(blocker).Run.Instance, "prompts like it have failed on the small one")
		require.LessOrEqual(t, small.Started(), 2)
		other := b.submit(working) // has another shape, and there is only the small one
		require.Contains(t, b.lost(other), "out of memory")
		must(b.Queue.Cancel(t.Context(), blocker))
		require.Equal(t, []string{"execution_start", "executed", "execution_success"}, skipTo(until, other))
		require.Equal(t, large.name, b.Job(other).Run.Instance)
		require.Equal(t, 3, small.Started())
		require.Equal(t, []run.Cause{run.OutOfMemory}, slices.Compact(b.retried()))
	})
}

// skipTo returns what a client was shown of the last run of a prompt.
func skipTo(until func(string) []string, key string) []string {
	types := until(key)
	for n, kind := range slices.Backward(types) {
		if kind == "execution_start" {
			return types[n:]
		}
	}
	return types
}

// An instance whose GPU process is broken gets no more jobs until it has restarted, and its agent
// is asked to restart it. The job runs elsewhere, and the loss counts as a kill.
func TestPoisonedProcess(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		broken := b.instances[0]
		broken.SetFault(sim.Faults{Poisoned: true})
		key := b.submit(picture)
		require.Contains(t, b.lost(key), "its GPU reported an error")
		require.Equal(t, 1, b.Job(key).Kills)
		state := func() fleet.State { i, _ := b.fleet.Instance(broken.name); return i.State }
		report := fleet.InstanceReport{Name: broken.name, URL: broken.web.URL, Direct: true, Up: true, Boot: 1}
		for _, report.Queue = range []int{1, 0} { // as after any run
			b.fleet.Observe(report)
			require.Equal(t, fleet.Sick, state())
		}
		require.Equal(t, 1, broken.Started())
		broken.SetFault(sim.Faults{})
		report.Boot = 2
		b.fleet.Observe(report)
		b.reaches(key, job.Done)

		// A prompt that keeps breaking the only instance has no more than its attempts.
		broken.SetFault(sim.Faults{Poisoned: true})
		key = b.submit(picture)
		for lost := range 3 {
			eventually(t, func() bool { return len(b.Job(key).Lost) == lost+1 }, deadline, 10*time.Millisecond)
			report.Boot++
			b.fleet.Observe(report)
		}
		require.Contains(t, b.failure(key), "No instance could finish")
		require.Equal(t, 1, b.Job(key).Kills)
	})
}

const gib = 1 << 30

// crowd says how much of an instance's GPU memory other programs hold.
func (b *dispatching) crowd(s *scripted, others int64) {
	i, known := b.fleet.Instance(s.name)
	require.True(b.t, known)
	i.Report.OthersMemory = others
	b.fleet.Observe(i.Report)
}

// A job that takes more memory than other programs leave waits for an instance with enough. If
// there is none, it runs all the same.
func TestOtherProgramsHoldTheMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		crowded := b.sized(24)
		b.crowd(crowded, 20*gib)
		b.connects(1)
		shape := shapeOf(b, endless)
		s, ok := schedule.DecodeStructure(shape)
		require.True(t, ok)
		b.durations.AddNeed(schedule.Pair{Structure: s.Key, Kind: s.Kind, GPU: b.reports.Gpu(crowded.name)}, schedule.Need{Work: s.Work, Bytes: 12 * gib})

		alone := b.submit(endless, withShape(shape))
		b.runs(alone)
		require.Equal(t, crowded.name, b.Job(alone).Run.Instance, "there is no other")
		must(b.Queue.Cancel(t.Context(), alone))
		b.reaches(alone, job.Cancelled)

		roomy := b.sized(16)
		b.connects(2)
		first, second := b.submit(endless, withShape(shape)), b.submit(endless, withShape(shape))
		eventually(t, func() bool { return b.Job(first).State == job.Running || b.Job(second).State == job.Running }, deadline, 10*time.Millisecond)
		running, waiting := first, second
		if b.Job(second).State == job.Running {
			running, waiting = second, first
		}
		require.Equal(t, roomy.name, b.Job(running).Run.Instance)
		small := b.submit(picture)
		b.reaches(small, job.Done)
		require.Equal(t, job.Queued, b.Job(waiting).State, "it waits for the other instance while that is there")
		require.Zero(t, b.Job(waiting).Attempts, "which counts as no attempt")

		b.crowd(crowded, 0)
		b.runs(waiting)
		require.Equal(t, crowded.name, b.Job(waiting).Run.Instance)
	})
}

// A job is not blamed for the death of a process that somebody ended on purpose: it costs neither
// an attempt nor a kill. Any other death does.
func TestDeliberateRestartIsNoKill(t *testing.T) {
	type row struct {
		// before happens while the job runs, after when the process is dead.
		before, after func(b *dispatching, report func(fleet.InstanceReport))
		blamed        bool
	}
	inBubbles(t, map[string]row{
		"nobody has asked for it": {blamed: true},
		"an operator drains the instance": {before: func(b *dispatching, _ func(fleet.InstanceReport)) {
			b.fleet.SetDraining("gpu", true)
		}},
		"its agent stops": {before: func(_ *dispatching, report func(fleet.InstanceReport)) {
			report(fleet.InstanceReport{Draining: true, Boot: 1})
		}},
		"a restart is due": {before: func(_ *dispatching, report func(fleet.InstanceReport)) {
			report(fleet.InstanceReport{Restarting: true, Boot: 1})
		}},
		"the agent says so when it is asked": {after: func(b *dispatching, _ func(fleet.InstanceReport)) {
			b.instances[0].on("GET /ws", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set(comfyui.UnreachableHeader, comfyui.Restarting)
				w.WriteHeader(http.StatusBadGateway)
			})
		}},
		"the next process was asked for": {after: func(b *dispatching, report func(fleet.InstanceReport)) {
			report(fleet.InstanceReport{Restarted: true, Boot: 2})
			b.instances[0].Restart()
		}},
		"this process was asked for, and dies": {before: func(_ *dispatching, report func(fleet.InstanceReport)) {
			report(fleet.InstanceReport{Restarted: true, Boot: 1})
		}, blamed: true},
	}, func(t *testing.T, tt row) {
		b := newDispatching(t, 0)
		a := hire(b, newScripted(t))
		report := func(r fleet.InstanceReport) {
			a.seq++
			r.Name, r.URL, r.Kind, r.Up = a.i.name, a.i.web.URL, fleet.KindComfyUI, true
			require.NoError(t, b.fleet.Apply(fleet.Report{Agent: "machine", Boot: a.boot, Seq: a.seq, Instances: []fleet.InstanceReport{r}}))
		}
		report(fleet.InstanceReport{Boot: 1})
		key := b.submit(endless)
		b.runs(key)
		if tt.before != nil {
			tt.before(b, report)
		}
		a.i.on("GET /ws", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set(comfyui.UnreachableHeader, comfyui.Gone)
			w.WriteHeader(http.StatusBadGateway)
		})
		if tt.after != nil {
			a.i.on("GET /ws", nil)
			tt.after(b, report)
		}
		a.i.DropSockets()
		reason := b.lost(key)
		j := b.Job(key)
		if tt.blamed {
			require.Contains(t, reason, "the instance died")
			require.Equal(t, 1, j.Kills)
		} else {
			require.Contains(t, reason, "restarted on purpose")
			require.Zero(t, j.Kills)
			require.Equal(t, 1, j.Excuses)
		}
		must(b.Queue.Cancel(t.Context(), key))
	})
}

// An agent that said it was leaving may come back. The instance keeps working, so its run is kept
// longer than that of an agent that was found dead.
func TestRunOfAnAgentThatRestarts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		a := hire(b, newScripted(t))
		a.report("")
		require.Equal(t, 15*time.Second, b.reports.Patience("gpu"))
		key := b.submit(working)
		b.runs(key)
		b.fleet.AgentStopped("machine", a.boot, "")
		require.Equal(t, 90*time.Second, b.reports.Patience("gpu"))
		a.i.DropSockets()
		a.boot++
		a.seq = 0
		a.report(key)
		require.Equal(t, 15*time.Second, b.reports.Patience("gpu"))
		require.Empty(t, b.reaches(key, job.Done).Lost)
		b.fleet.AgentLeft("machine", a.boot, "")
		require.Equal(t, 15*time.Second, b.reports.Patience("gpu"), "it was found dead")
	})
}

// choosy is a Redis that refuses one final state, for a reason that nobody knows.
type choosy struct {
	goredis.Hook
	state string
	tries atomic.Int32
}

type oddReply string

func (o oddReply) Error() string { return string(o) }
func (o oddReply) RedisError()   {}

func (c *choosy) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (c *choosy) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		// The final state is followed by how long the run took and its entry.
		if args := cmd.Args(); slices.Contains(args, any(c.state)) {
			c.tries.Add(1)
			cmd.SetErr(oddReply("ERR odd"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (c *choosy) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// If the end of a job cannot be written, for a reason nobody has thought of, it is tried a few
// times. Then the job ends with an error instead of running again and again.
func TestEndThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	c := &choosy{state: string(job.Done)}
	b := newDispatchingOn(t, redistest.Start(t).URL(), c, 1)
	key := b.submit(picture)
	require.Contains(t, b.failure(key), "The hub could not store the end of this prompt.")
	require.EqualValues(t, 1+4, c.tries.Load())
	require.Equal(t, 1, b.Job(key).Attempts)
	b.leaves(key)
	require.Equal(t, []string{"failed"}, b.ends())
}
