package dispatch

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// described returns what an instance with some node classes can run.
func described(nodes ...string) *catalog.Info {
	body := `{"Common":{"input":{"required":{}}}`
	for _, node := range nodes {
		body += fmt.Sprintf(`,%q:{"input":{"required":{}}}`, node)
	}
	return must(catalog.Parse([]byte(body + "}")))
}

func needing(nodes ...string) []byte { return catalog.Requirements{Classes: nodes}.Encode() }

// Remembered answers are what an instance would say, even after its abilities have changed.
func TestJudgements(t *testing.T) {
	t.Parallel()
	classes := map[string][]byte{
		"common": needing("Common"), "video": needing("Common", "Video"), "none": needing("Nowhere"), "newer": []byte("{"),
	}
	plain, video := described(), described("Video")
	var js judgements
	for range 2 {
		idle := []schedule.Idle{{Name: "a"}, {Name: "b"}, {Name: "c"}}
		wanted := js.able(idle, []*catalog.Info{plain, video, described()}, classes)
		require.ElementsMatch(t, []string{"none", "newer"}, wanted.But)
		require.Equal(t, map[string]bool{"common": true}, idle[0].Classes)
		require.Equal(t, map[string]bool{"common": true, "video": true}, idle[1].Classes)
		require.Equal(t, map[string]bool{"common": true}, idle[2].Classes)
		require.Equal(t, 6, js.count, "once for each pair")
	}
	idle := []schedule.Idle{{Name: "a"}}
	require.ElementsMatch(t, []string{"video", "none", "newer"}, js.able(idle, []*catalog.Info{plain}, classes).But)
	require.ElementsMatch(t, []string{"video", "newer"}, js.able(idle, []*catalog.Info{described("Nowhere")}, classes).But)

	left := js.none([]*catalog.Info{plain, nil, video}, classes)
	require.Len(t, left, 2)
	require.Contains(t, left, "none")
	require.Contains(t, left, "newer")
	require.Len(t, classes, 4)
	require.Len(t, js.none(nil, classes), 4)
}

func TestJudgementsAreBounded(t *testing.T) {
	t.Parallel()
	var js judgements
	info := described()
	for n := range maxJudgements + 10 {
		js.keep(info.Profile(), fmt.Sprint(n), true)
	}
	require.Len(t, js.known[info.Profile()], 10)
}

// BenchmarkAble judges a thousand classes for 500 idle instances of 20 profiles.
func BenchmarkAble(b *testing.B) {
	classes := map[string][]byte{}
	for n := range 1000 {
		classes[fmt.Sprint("class", n)] = needing("Common", fmt.Sprint("Node", n%20))
	}
	idle, infos := make([]schedule.Idle, 500), make([]*catalog.Info, 500)
	for n := range infos {
		infos[n] = described(fmt.Sprint("Node", n%20))
	}
	b.Run("remembered", func(b *testing.B) {
		var js judgements
		for b.Loop() {
			js.able(idle, infos, classes)
		}
	})
	b.Run("each", func(b *testing.B) {
		for b.Loop() {
			for _, encoded := range classes {
				needs := must(catalog.DecodeRequirements(encoded))
				for _, info := range infos {
					info.Satisfies(needs)
				}
			}
		}
	})
}

// A hub meets the waiting classes when it looks for jobs, however many there are, and finds what
// its instances can run behind everything that they cannot.
func TestLookMeetsClasses(t *testing.T) {
	t.Parallel()
	db := redistest.Embedded(t)
	q := must(queue.New(db, queue.Options{}))
	d := New(Config{Queue: q, Settings: func() Settings { return Settings{} }, Logger: slog.New(slog.DiscardHandler)})
	post := func(class string, requires []byte) {
		must(q.Enqueue(t.Context(), queue.Submission{
			Key: uuid.NewString(), ID: uuid.NewString(), Requester: job.Requester{Tenant: "t", Caller: "c", Client: "c"},
			Class: class, BodyHash: class, Body: job.Body{Prompt: []byte("{}"), Extra: []byte("{}"), Requires: requires},
		}))
	}
	look := func() (found []string, wanted queue.Wanted) {
		idle := []schedule.Idle{{Name: "a"}}
		w, l, err := d.requirements.look(t.Context(), idle, []*catalog.Info{described()}, 0)
		require.NoError(t, err)
		for _, j := range w.Jobs {
			require.True(t, idle[0].Classes[j.Class])
			found = append(found, j.Class)
		}
		return found, l.wanted
	}
	const others = 300
	for n := range others {
		post(fmt.Sprint("other", n), needing("Nowhere", fmt.Sprint(n)))
	}
	post("common", needing("Common"))
	found, wanted := look()
	require.Equal(t, []string{"common"}, found)
	require.Len(t, wanted.But, others)

	post("late", needing("Nowhere"))
	post("later", needing("Common", "Common"))
	found, wanted = look()
	require.Equal(t, []string{"common"}, found, "a look is for one instance, so one job")
	require.Len(t, wanted.But, others, "nobody has come upon the others")

	w := must(d.requirements.window(t.Context(), []schedule.Idle{{Name: "a"}}, []*catalog.Info{described()}, &wanted, 1, 4))
	require.Len(t, w.Jobs, 1)
	require.Equal(t, "later", w.Jobs[0].Class)
	require.Len(t, wanted.But, others+1)

	another, err := queue.New(db, queue.Options{}) // q would remember what the class needs
	require.NoError(t, err)
	q = another
	post("lost", needing("Common"))
	require.NoError(t, db.Client().Del(t.Context(), db.Key("q", "class", "lost")).Err())
	w = must(d.requirements.window(t.Context(), []schedule.Idle{{Name: "a"}}, []*catalog.Info{described()}, &wanted, 0, 5))
	require.Len(t, w.Jobs, 2, "what a job needs that nobody knows is not guessed")
}

// A job that is not given to an idle instance that could run it is reported as stuck until it runs.
func TestStuckJobsAreSeen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.reaches(b.submit(picture), job.Done)
		b.Dispatcher.Close()
		b.Dispatcher = New(b.config) // its loop does not run yet
		b.loops.Go(func() { b.links.Follow(b.ctx) })
		b.loops.Go(func() { b.Watchdog.watch(b.ctx) })
		key := b.submit(picture)
		eventually(t, func() bool { return b.Watchdog.Stuck() == 1 }, deadline, 10*time.Millisecond)
		require.Contains(t, b.logged(), "jobs are waiting although an idle instance")
		b.loops.Go(func() { b.loop(b.ctx) })
		b.reaches(key, job.Done)
		eventually(t, func() bool { return b.Watchdog.Stuck() == 0 }, deadline, 10*time.Millisecond)
	})
}

// However many jobs an instance does not take now, the job behind them runs.
func TestJobBehindManyThatRest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		var resting []string
		for range 130 {
			resting = append(resting, b.submit(picture))
			b.rests.here.Note(resting[len(resting)-1], time.Hour, false)
		}
		key := b.submit(picture)
		b.add(newScripted(t))
		b.reaches(key, job.Done)
		for _, key := range resting {
			require.Zero(t, b.Job(key).Fence, "it was not claimed")
		}
	})
}

// A job that cannot be claimed does not hold up the others.
func TestJobThatCannotBeClaimed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		broken := b.submit(picture)
		b.record(broken, "kills", "none") // its record cannot be read
		odd := b.submit(picture)
		b.record(odd, "not_before", "0x") // the script fails
		key := b.submit(picture)
		b.add(newScripted(t))
		b.reaches(key, job.Done)
	})
}
