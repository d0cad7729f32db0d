package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// walk is one run of the model test.
type walk struct {
	*bench
	ctx     context.Context
	rand    *rand.Rand
	m       *model
	step    int
	old     []job.Run // runs that were once held, to be presented again
	last    job.Job   // the job of the last step
	journal []string
	behind  int      // claims ahead
	calling []string // keys of the jobs that were accepted
}

func (w *walk) note(format string, args ...any) {
	w.journal = append(w.journal, fmt.Sprintf("%d: ", w.step)+fmt.Sprintf(format, args...))
}

func pick[T any](w *walk, list []T) (one T, ok bool) {
	if len(list) == 0 {
		return one, false
	}
	return list[w.rand.IntN(len(list))], true
}

// anyJob returns a job in any state, and sometimes one that does not exist.
func (w *walk) anyJob(states ...job.State) *modelJob {
	var list []*modelJob
	for _, j := range w.m.jobs {
		if len(states) == 0 || slices.Contains(states, j.State) {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *modelJob) int { return strings.Compare(a.Key, b.Key) })
	if j, ok := pick(w, list); ok && w.rand.IntN(20) > 0 {
		return j
	}
	return nil
}

// anyRun returns a run that is held, often one that waits at an instance, and sometimes one that is no
// longer held.
func (w *walk) anyRun() job.Run {
	behind := w.m.live(func(j *modelJob) bool { return j.Ahead && j.State == job.Leased })
	if j, ok := pick(w, behind); ok && w.rand.IntN(3) == 0 {
		return j.Run
	}
	if w.rand.IntN(8) == 0 {
		if run, ok := pick(w, w.old); ok {
			return run
		}
	}
	if j := w.anyJob(job.Leased, job.Running); j != nil {
		return j.Run
	}
	return job.Run{Key: "unknown", Fence: 1}
}

func (w *walk) enqueue() {
	id, tenant := fmt.Sprint("id", w.rand.IntN(12)), fmt.Sprint("t", w.rand.IntN(2))
	class := fmt.Sprint("class", w.rand.IntN(3))
	s := submission(id, func(s *queue.Submission) {
		s.Key = fmt.Sprintf("%016x", w.rand.Uint64()) // anyJob uses it
		s.Tenant, s.Caller, s.Class = tenant, fmt.Sprint("c", w.rand.IntN(3)), class
		s.Callback = &queue.Callback{URL: "https://example.com/", Events: allEvents}
		s.Client = []string{"", "client"}[w.rand.IntN(2)]
		s.Priority = w.rand.IntN(3) - 1
		s.Band = []job.Band{"", "", "", job.Interactive, job.Bulk}[w.rand.IntN(5)]
		s.BodyHash = fmt.Sprint(w.rand.IntN(2))
		s.Front = w.rand.IntN(4) == 0
		s.Body.Requires = []byte("requires of " + class)
		s.Body.Prompt = make([]byte, w.rand.IntN(3000))
		for i := range s.Body.Prompt {
			s.Body.Prompt[i] = byte(w.rand.Uint32()) // bodies of many weights
		}
		if w.rand.IntN(3) == 0 {
			s.Body.Secrets = []byte("secret")
		}
		if w.rand.IntN(4) == 0 {
			number := float64(w.rand.IntN(9) - 4)
			s.Number = &number
		}
	})
	got := must(w.Enqueue(w.ctx, s))
	w.note("enqueue %s/%s %s: %s existing=%t", tenant, id, s.Key, got.Job.State, got.Existing)
	w.last = got.Job
	if j := w.m.jobs[w.m.newest[[2]string{tenant, id}]]; j != nil && j.BodyHash == s.BodyHash && !j.gone && !j.withdrawn {
		require.True(w.t, got.Existing)
		require.Equal(w.t, j.Key, got.Job.Key)
		return
	}
	require.False(w.t, got.Existing)
	next := max(w.m.numbers[tenant], w.m.highest[tenant])
	number := float64(next)
	literal, placed := strconv.Itoa(next), false
	switch {
	case s.Number != nil:
		number = *s.Number
		literal = strconv.FormatFloat(number, 'f', 1, 64)
	case s.Front:
		if number != 0 {
			number, literal = -number, "-"+literal
		}
		w.m.numbers[tenant] = next + 1
	default:
		w.m.numbers[tenant] = next + 1
		number, placed = w.m.turns.place(tenant+s.Band.Mark(), s.Caller, next), true
	}
	require.Equal(w.t, literal, got.Job.Number)
	require.True(w.t, strings.HasPrefix(got.Job.Rank, s.Band.Mark()+job.RankPrefix(s.Priority, number)))
	w.m.jobs[s.Key] = &modelJob{
		Job: got.Job, requires: string(s.Body.Requires), weight: w.weigh(s.Key), placed: placed, place: number,
	}
	w.m.newest[[2]string{tenant, id}] = s.Key
	w.calling = append(w.calling, s.Key)
}

func (w *walk) claim() {
	states := []job.State{job.Queued}
	if w.rand.IntN(8) == 0 {
		states = nil
	}
	j := w.anyJob(states...)
	key := "unknown"
	if j != nil {
		key = j.Key
	}
	instance, hub := w.where()
	if j != nil && j.Run.Instance != "" && w.rand.IntN(3) == 0 {
		instance = j.Run.Instance // again
	}
	r := queue.ClaimRequest{
		Key: key, Tenant: w.m.tenant(key), Instance: instance, Hub: hub,
		Upstream: uuid.NewString(), SID: "sid", Ahead: w.rand.IntN(4) > 0, After: w.after(),
	}
	got, classes, err := w.ClaimCounting(w.ctx, r)
	w.note("claim %s on %s: ahead=%t, %v", key, r.Instance, got.Ahead, err)
	switch {
	case j == nil:
		require.ErrorIs(w.t, err, queue.ErrNotFound)
		return
	case j.State != job.Queued:
		require.ErrorIs(w.t, err, queue.ErrNotQueued)
		return
	case j.paused, j.stopped:
		require.ErrorIs(w.t, err, queue.ErrNotQueued)
		return
	}
	free, behind := w.m.vacate(r)
	switch {
	case !free && !behind:
		require.ErrorIs(w.t, err, queue.ErrTaken)
		return
	case len(w.m.seats(j.Tenant)) >= modelSeats[j.Tenant]:
		require.ErrorIs(w.t, err, queue.ErrCapped)
		w.m.barred[j.Tenant] = true
		return
	}
	require.NoError(w.t, err)
	require.Greater(w.t, got.Fence, j.Fence)
	w.m.do(j, job.Claim)
	w.m.turns.taken(j)
	w.m.passOver(j)
	if j.Ahead = behind; behind {
		w.behind++
	} else {
		w.m.instances[r.Instance] = key
	}
	j.Attempts++
	j.Fence, j.Run, j.Reason = got.Fence, got.Run, ""
	j.exhausted, j.released, j.expired = false, false, false
	require.Equal(w.t, job.Run{
		Key: key, Fence: got.Fence, Instance: r.Instance, Hub: r.Hub, Upstream: r.Upstream, SID: "sid", LeaseUntil: got.Run.LeaseUntil,
	}, got.Run)
	w.old = append(w.old, got.Run)
	w.last = got
	left := map[string]bool{}
	for _, j := range w.m.live(func(j *modelJob) bool { return j.State == job.Queued && !j.stopped }) {
		left[j.Class] = true
	}
	require.Len(w.t, left, classes)
}

func (w *walk) started() {
	run := w.anyRun()
	err := w.Started(w.ctx, run)
	w.note("started %s %d: %v", run.Key, run.Fence, err)
	if j := w.m.held(run); j != nil {
		switch {
		case j.withdrawn:
			require.ErrorIs(w.t, err, queue.ErrWithdrawn)
		case j.cancelAsked:
			require.ErrorIs(w.t, err, queue.ErrCancelled)
		default:
			require.NoError(w.t, err)
		}
		require.NoError(w.t, w.Progress(w.ctx, run, w.rand.Float64()))
		w.m.begin(j)
		w.m.do(j, job.Start)
		return
	}
	require.ErrorIs(w.t, err, queue.ErrStale)
	require.ErrorIs(w.t, w.Progress(w.ctx, run, 1), queue.ErrStale)
}

func (w *walk) release() {
	run := w.anyRun()
	err := w.Release(w.ctx, run)
	w.note("release %s %d: %v", run.Key, run.Fence, err)
	if j := w.m.held(run); j != nil {
		require.NoError(w.t, err)
		if !j.released {
			w.m.free(j)
		}
		return
	}
	require.ErrorIs(w.t, err, queue.ErrStale)
}

func (w *walk) finish() {
	run := w.anyRun()
	event := []job.Event{job.Complete, job.Fail, job.Cancel}[w.rand.IntN(3)]
	state, _ := job.Next(job.Running, event)
	left, err := w.FinishCounting(w.ctx, run, queue.Outcome{State: state, Entry: []byte(run.Key), Reason: string(event)})
	w.note("finish %s %d %s: %v", run.Key, run.Fence, state, err)
	if j := w.m.held(run); j != nil {
		defer func() {
			if err == nil {
				require.Equal(w.t, must(w.Count(w.ctx, j.Caller)), left)
			}
		}()
		w.m.free(j)
		if j.withdrawn && j.listed && w.m.newest[[2]string{j.Tenant, j.ID}] == j.Key && !w.m.hasEntry(j) {
			require.ErrorIs(w.t, err, queue.ErrWithdrawn)
			j.withdrawn = false
			w.m.do(j, event)
			w.m.end(j, string(event))
			w.m.ends = w.m.ends[:len(w.m.ends)-1] // who has taken a job back waits for no message
			return
		}
		if j.withdrawn {
			require.ErrorIs(w.t, err, queue.ErrWithdrawn)
			w.m.do(j, job.Cancel)
			j.gone = true
			w.m.left(j.Tenant)
			return
		}
		require.NoError(w.t, err)
		w.m.do(j, event)
		w.m.end(j, string(event))
		return
	}
	if j := w.m.jobs[run.Key]; j != nil && j.State.Ended() && (j.withdrawn || j.listed) && j.Fence == run.Fence {
		require.ErrorIs(w.t, err, queue.ErrWithdrawn, "the same end again")
		return
	}
	if j := w.m.jobs[run.Key]; j != nil && j.State.Ended() && !j.gone && j.Fence == run.Fence {
		require.NoError(w.t, err, "the same end again")
		return
	}
	require.ErrorIs(w.t, err, queue.ErrStale)
}

func (w *walk) requeue() {
	run := w.anyRun()
	blame := w.rand.IntN(24)
	excused, killed, hopeless := blame < 7, blame >= 7 && blame < 16, blame == 16
	unused := w.unused(run)
	o := queue.RequeueOptions{Reason: fmt.Sprint("step ", w.step), Excused: excused, Killed: killed, Hopeless: hopeless, Failed: w.rand.IntN(4) > 0}
	if unused {
		o, excused, killed, hopeless = queue.RequeueOptions{Unused: true}, false, false, false
	}
	if w.rand.IntN(8) == 0 {
		o.Pause = time.Hour
	}
	got, err := w.Requeue(w.ctx, run, o)
	w.note("requeue %s %d %+v: %v", run.Key, run.Fence, o, err)
	w.last = got
	j := w.m.held(run)
	switch {
	case j == nil:
		require.ErrorIs(w.t, err, queue.ErrStale)
		return
	case j.cancelAsked:
		require.ErrorIs(w.t, err, queue.ErrCancelled)
		return
	case j.exhausted:
		require.ErrorIs(w.t, err, queue.ErrExhausted)
		return
	}
	if unused {
		j.Attempts--
	} else {
		j.Lost = append(j.Lost, o.Reason)
		j.Lost = j.Lost[max(0, len(j.Lost)-8):]
	}
	if excused {
		j.Attempts--
		j.Excuses++
		if j.State == job.Running {
			j.reruns++
		}
	}
	if killed && !slices.Contains(j.killedAt, j.Run.Instance) {
		j.Kills++
		j.killedAt = append(j.killedAt, j.Run.Instance)
	}
	if o.Failed && !slices.Contains(j.FailedAt, j.Run.Instance) {
		j.FailedAt = append(j.FailedAt, j.Run.Instance)
	}
	if !j.released {
		w.m.free(j)
	}
	if j.reruns >= queue.MaxReruns || hopeless || !excused && !unused && (j.Attempts >= modelAttempts || j.Kills >= queue.MaxKills) {
		require.ErrorIs(w.t, err, queue.ErrExhausted)
		j.exhausted = true
		return
	}
	require.NoError(w.t, err)
	w.m.do(j, job.Requeue)
	j.Ahead = false
	j.paused = o.Pause > 0
	j.Reason = o.Reason
}

// takenOver records a new holder.
func (w *walk) takenOver(j *modelJob, o queue.Orphan, hub string) {
	require.Greater(w.t, o.Fence, j.Fence)
	want := j.Run
	want.Fence, want.Hub, want.LeaseUntil = o.Fence, hub, o.LeaseUntil
	require.Equal(w.t, queue.Orphan{
		Run: want, State: j.State, Released: j.released, Exhausted: j.exhausted, CancelAsked: j.cancelAsked,
	}, o)
	j.Fence, j.Run, j.expired = o.Fence, o.Run, false
	w.old = append(w.old, o.Run)
}

func (w *walk) adopt() {
	run := w.anyRun()
	hub := fmt.Sprint("hub", w.rand.IntN(2))
	o, err := w.Adopt(w.ctx, run, hub)
	w.note("adopt %s %d: %v", run.Key, run.Fence, err)
	if j := w.m.held(run); j != nil {
		require.NoError(w.t, err)
		w.takenOver(j, o, hub)
		return
	}
	require.ErrorIs(w.t, err, queue.ErrStale)
}

func (w *walk) lapse() {
	if j := w.anyJob(job.Leased, job.Running); j != nil {
		w.note("lease of %s ends", j.Key)
		w.expire(j.Run)
		j.expired = true
	}
}

func (w *walk) sweep() {
	hub := fmt.Sprint("hub", w.rand.IntN(2))
	orphans, err := w.Sweep(w.ctx, hub, 100)
	w.note("sweep: %d", len(orphans))
	require.NoError(w.t, err)
	for _, o := range orphans {
		j := w.m.jobs[o.Key]
		require.NotNil(w.t, j)
		require.True(w.t, j.expired && j.runs())
		w.takenOver(j, o, hub)
	}
	for _, j := range w.m.jobs {
		require.False(w.t, j.runs() && j.expired, "not handed over")
	}
}
