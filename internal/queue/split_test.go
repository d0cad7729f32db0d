package queue_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// parts are two parts of a job.
func parts() (list []queue.Part, keys []string) {
	for _, seed := range []string{"1", "2"} {
		p := queue.Part{Key: uuid.NewString(), Body: job.Body{Prompt: []byte(`{"1":{"seed":` + seed + `}}`), Extra: []byte(`{}`), Requires: []byte("requires")}}
		list, keys = append(list, p), append(keys, p.Key)
	}
	return list, keys
}

// divided is a job that runs and was split, with the keys of its two other parts.
func (b *bench) divided(id string) (j job.Job, list []queue.Part, keys []string) {
	j = b.claim(b.enqueue(id), id)
	list, keys = parts()
	_, _, err := b.Beat(b.t.Context(), "hub/1", time.Minute)
	require.NoError(b.t, err)
	require.NoError(b.t, b.Split(b.t.Context(), j.Run, "part", list))
	return j, list, keys
}

func endStates(ends []queue.PartEnd) (list []job.State) {
	for _, e := range ends {
		list = append(list, e.State)
	}
	return list
}

// Parts run like other jobs, and nobody sees them.
func TestPartsAreNotListed(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j, list, keys := b.divided("a")
		requireListed(t, b, "a")
		require.Equal(t, keys, b.get(j.Key).Parts)
		one := b.claim(b.get(keys[0]), "gpu1")
		require.Equal(t, j.Key, one.Parent)
		require.Equal(t, "a", one.ID)
		require.Equal(t, list[0].Body.Prompt, must(b.Body(t.Context(), keys[0])).Prompt)
		require.NoError(t, b.Started(t.Context(), one.Run))
		requireListed(t, b, "a")
		require.Equal(t, j.Key, must(b.Find(t.Context(), "tenant", "a")).Key)
		require.NoError(t, b.Finish(t.Context(), one.Run, done("outputs")))
		require.NoError(t, b.Finish(t.Context(), one.Run, done("outputs")), "sent again")

		require.NoError(t, b.Split(t.Context(), j.Run, "part", list), "again")
		ends := must(b.PartEnds(t.Context(), keys))
		require.Equal(t, []job.State{job.Done, job.Queued}, endStates(ends))
		require.Equal(t, "outputs", string(ends[0].Entry))
		require.Equal(t, "gpu1", ends[0].Instance)
		requireListed(t, b, "a")
		require.ErrorIs(t, errOf(b.HistoryEntry(t.Context(), "tenant", "a")), queue.ErrNotFound)

		require.NoError(t, b.Redo(t.Context(), j.Run, keys[0]))
		require.NoError(t, b.Split(t.Context(), j.Run, "part", list))
		require.Equal(t, []job.State{job.Queued, job.Queued}, endStates(must(b.PartEnds(t.Context(), keys))))
	})
}

// However a job ends, its parts end with it: those that wait, run and have ended.
func TestPartsEndWithTheirJob(t *testing.T) {
	eachOf(t, queue.Options{}, map[string]func(b *bench, j job.Job){
		"done":      func(b *bench, j job.Job) { require.NoError(b.t, b.Finish(b.t.Context(), j.Run, done("all"))) },
		"not split": func(b *bench, j job.Job) { require.NoError(b.t, b.Unsplit(b.t.Context(), j.Run)) },
		"lost, then cancelled": func(b *bench, j job.Job) {
			must(b.Requeue(b.t.Context(), j.Run, queue.RequeueOptions{}))
			must(b.Cancel(b.t.Context(), j.Key))
		},
		"withdrawn": func(b *bench, j job.Job) {
			must(b.Withdraw(b.t.Context(), j.Key, false))
			require.ErrorIs(b.t, b.Finish(b.t.Context(), j.Run, done("all")), queue.ErrWithdrawn)
		},
	}, func(t *testing.T, b *bench, end func(b *bench, j job.Job)) {
		j, _, keys := b.divided("a")
		one := b.claim(b.get(keys[0]), "gpu1")
		end(b, j)
		require.Equal(t, []job.State{job.Leased, ""}, endStates(must(b.PartEnds(t.Context(), keys))))
		lost := must(b.Renew(t.Context(), "hub/1", []job.Run{one.Run}))
		require.Len(t, lost.Withdrawn, 1, "its holder is asked to end it")
		require.ErrorIs(t, b.Finish(t.Context(), one.Run, done("outputs")), queue.ErrWithdrawn)
		require.Equal(t, []job.State{"", ""}, endStates(must(b.PartEnds(t.Context(), keys))))
		require.Empty(t, must(b.Classes(t.Context()))["part"])
	})
}

// A part that goes on because Redis has lost that it was taken back leaves nothing when it ends.
func TestPartsThatOutliveTheirJob(t *testing.T) {
	eachOf(t, queue.Options{}, map[string]func(b *bench, j job.Job){
		"done":      func(b *bench, j job.Job) { require.NoError(b.t, b.Finish(b.t.Context(), j.Run, done("all"))) },
		"not split": func(b *bench, j job.Job) { require.NoError(b.t, b.Unsplit(b.t.Context(), j.Run)) },
	}, func(t *testing.T, b *bench, end func(b *bench, j job.Job)) {
		j, _, keys := b.divided("a")
		one := b.claim(b.get(keys[0]), "gpu1")
		end(b, j)
		require.NoError(t, b.db.Client().HDel(t.Context(), b.db.Key("q", "job", keys[0]), "cancel", "withdrawn").Err())
		require.NoError(t, b.Finish(t.Context(), one.Run, done("outputs")))
		require.Equal(t, []job.State{"", ""}, endStates(must(b.PartEnds(t.Context(), keys))))
		require.Zero(t, must(b.db.Client().Exists(t.Context(), b.db.Key("q", "tombs"), b.db.Key("q", "job", keys[0])).Result()))
	})
}

// Redis has lost a job and not its part, which ends before the job's hub brings the job back: what
// the part has made is still wanted.
func TestPartOfALostJob(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j, _, keys := b.divided("a")
		one := b.claim(b.get(keys[0]), "gpu1")
		require.NoError(t, b.db.Client().Del(t.Context(), b.db.Key("q", "job", j.Key)).Err())
		require.NoError(t, b.Finish(t.Context(), one.Run, done("outputs")))
		require.Equal(t, job.Done, endStates(must(b.PartEnds(t.Context(), keys)))[0])
	})
}

// A job that Redis had lost comes back without its parts, of which one has ended meanwhile: nobody takes
// that end, and it does not stay for a day.
func TestPartOfAJobThatForgotIt(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j, _, keys := b.divided("a")
		one := b.claim(b.get(keys[0]), "gpu1")
		record := b.db.Key("q", "job", j.Key)
		kept := must(b.db.Client().HGetAll(t.Context(), record).Result())
		require.NoError(t, b.db.Client().Del(t.Context(), record).Err())
		require.NoError(t, b.Finish(t.Context(), one.Run, done("outputs")))
		delete(kept, "parts")
		require.NoError(t, b.db.Client().HSet(t.Context(), record, kept).Err())
		must(b.Sweep(t.Context(), "hub/1", 10))
		require.Equal(t, job.Done, endStates(must(b.PartEnds(t.Context(), keys)))[0], "its job may still want it")
		require.NoError(t, b.Finish(t.Context(), j.Run, done("all")))
		must(b.Sweep(t.Context(), "hub/1", 10))
		require.Empty(t, endStates(must(b.PartEnds(t.Context(), keys)))[0])
		require.Zero(t, must(b.db.Client().Exists(t.Context(), b.db.Key("q", "tombs"), b.db.Key("q", "job", keys[0])).Result()))
		requireHistory(t, b, "tenant", "a:all")
	})
}

// The next run of a job has the parts of the last one, and none if those did not fit.
func TestPartsOfTheNextRun(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j, list, keys := b.divided("a")
		one := b.claim(b.get(keys[0]), "gpu1")
		require.NoError(t, b.Finish(t.Context(), one.Run, done("outputs")))
		j = b.claim(must(b.Requeue(t.Context(), j.Run, queue.RequeueOptions{})), "gpu2")
		require.Equal(t, keys, j.Parts)
		require.NoError(t, b.Split(t.Context(), j.Run, "part", list))
		require.Equal(t, []job.State{job.Done, job.Queued}, endStates(must(b.PartEnds(t.Context(), keys))))

		require.NoError(t, b.Unsplit(t.Context(), j.Run))
		j = b.claim(must(b.Requeue(t.Context(), j.Run, queue.RequeueOptions{})), "gpu2")
		require.True(t, j.Whole)
		require.Empty(t, j.Parts)
		require.ErrorIs(t, b.Split(t.Context(), j.Run, "part", list), queue.ErrAnswered)
		require.Equal(t, []job.State{"", ""}, endStates(must(b.PartEnds(t.Context(), keys))))
	})
}

// Only the hub that has the job runs its parts: it has to fetch their files.
func TestPartsRunAtTheHubOfTheirJob(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j, _, keys := b.divided("a")
		ask := queue.ClaimRequest{Key: keys[0], Instance: "gpu1", Hub: "hub/2", Upstream: "u"}
		require.ErrorIs(t, errOf(b.Claim(t.Context(), ask)), queue.ErrNotQueued)
		must(b.Adopt(t.Context(), j.Run, "hub/2"))
		must(b.Claim(t.Context(), ask))
	})
}

// A hub that listens and does not say that it knows parts is of an older version.
func TestNoPartsBesideAnOlderHub(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		if b.db.Embedded() {
			return // there is no other hub
		}
		heard := b.Subscribe(t.Context())
		require.Equal(t, queue.Resync, (<-heard).Kind)
		go func() {
			for range heard {
			}
		}()
		j := b.claim(b.enqueue("a"), "gpu1")
		list, keys := parts()
		require.ErrorIs(t, b.Split(t.Context(), j.Run, "part", list), queue.ErrAnswered)
		require.Equal(t, []job.State{"", ""}, endStates(must(b.PartEnds(t.Context(), keys))))
		require.Empty(t, b.get(j.Key).Parts)
		_, _, err := b.Beat(t.Context(), "hub/1", time.Minute)
		require.NoError(t, err)
		require.NoError(t, b.Split(t.Context(), j.Run, "part", list))
		require.NoError(t, b.Quit(t.Context(), "hub/1"))
		require.NoError(t, b.Split(t.Context(), j.Run, "part", list), "what was split stays so")
		other := b.claim(b.enqueue("b"), "gpu2")
		require.ErrorIs(t, b.Split(t.Context(), other.Run, "part", list), queue.ErrAnswered)
	})
}

// The repairs of the indexes find parts as well.
func TestPartsAreIndexedAgain(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		_, _, keys := b.divided("a")
		script := redis.NewScript("break", redis.Write, `write('HSET', key('q', 'counters'), 'indexed', '7') write('HSET', key('q', 'waiting_jobs'), '', '7') return {'ok'}`)
		must(b.db.Run(t.Context(), script))
		must(b.Sweep(t.Context(), "hub/1", 10))
		w := must(b.Window(t.Context(), queue.Wanted{}, 0, 10))
		require.Len(t, w.Jobs, 2)
		require.ElementsMatch(t, keys, []string{w.Jobs[0].Key, w.Jobs[1].Key})
		waiting, bytes, err := b.Waiting(t.Context(), "")
		require.NoError(t, err)
		require.Zero(t, waiting)
		require.Zero(t, bytes)
		live, waiting, _, err := b.CountAll(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int{1, 0}, []int{live, waiting})
	})
}

// Whatever of a divided job Redis loses, and whichever hub puts its copies back first, nothing of its
// parts stays when it has ended.
func TestPartsOfAJobThatIsPutBack(t *testing.T) {
	heal := func(hubs ...*bench) {
		for _, b := range hubs {
			require.NoError(b.t, b.Heal(b.t.Context()))
		}
	}
	beside.Cases(t, map[string]func(rewind func(), j job.Job, its, others *bench){
		"its end is lost, and put back after that of the part": func(rewind func(), j job.Job, its, others *bench) {
			require.NoError(its.t, its.Finish(its.t.Context(), j.Run, done("all")))
			rewind()
			heal(others, its)
		},
		"its end is lost, and put back before that of the part": func(rewind func(), j job.Job, its, others *bench) {
			require.NoError(its.t, its.Finish(its.t.Context(), j.Run, done("all")))
			rewind()
			heal(its, others)
		},
		"it ends after the split was lost": func(rewind func(), j job.Job, its, others *bench) {
			rewind()
			heal(others, its)
			require.NoError(its.t, its.Finish(its.t.Context(), j.Run, done("all")))
		},
	}, func(t *testing.T, test func(rewind func(), j job.Job, its, others *bench)) {
		server := redistest.Start(t)
		its, others := on(t, redistest.Open(t, server.URL()), queue.Options{}), on(t, redistest.Open(t, server.URL()), queue.Options{})
		heal(its, others)
		j := its.claim(its.enqueue("a"), "a")
		must(its.Body(t.Context(), j.Key))
		_, _, err := its.Beat(t.Context(), "hub/1", time.Minute)
		require.NoError(t, err)
		rewind := server.Save()
		list, keys := parts()
		require.NoError(t, its.Split(t.Context(), j.Run, "part", list))
		one := others.claim(others.get(keys[0]), "gpu1")
		must(others.Body(t.Context(), keys[0]))
		require.NoError(t, others.Finish(t.Context(), one.Run, done("outputs")))
		test(rewind, j, its, others)
		require.Equal(t, []job.State{"", ""}, endStates(must(its.PartEnds(t.Context(), keys))))
		require.Zero(t, must(its.db.Client().Exists(t.Context(), its.db.Key("q", "tombs")).Result()))
		require.Empty(t, must(its.Classes(t.Context())))
		requireHistory(t, its, "tenant", "a:all")
	})
}

// A part that is made again is not ended by the end that it had before, at whatever point Redis is
// restarted.
func TestPartIsMadeAgain(t *testing.T) {
	beside.Cases(t, map[string]func(j job.Job, list []queue.Part, its *bench, restart func()) job.Job{
		"before it waits": func(j job.Job, list []queue.Part, its *bench, restart func()) job.Job {
			restart()
			require.Empty(its.t, endStates(must(its.PartEnds(its.t.Context(), []string{list[0].Key})))[0])
			require.NoError(its.t, its.Split(its.t.Context(), j.Run, "part", list))
			return its.claimsLater(list[0].Key)
		},
		"while it waits": func(j job.Job, list []queue.Part, its *bench, restart func()) job.Job {
			require.NoError(its.t, its.Split(its.t.Context(), j.Run, "part", list))
			restart()
			return its.claimsLater(list[0].Key)
		},
		"while it runs": func(j job.Job, list []queue.Part, its *bench, restart func()) job.Job {
			require.NoError(its.t, its.Split(its.t.Context(), j.Run, "part", list))
			again := its.claim(its.get(list[0].Key), "gpu2")
			restart()
			return again
		},
	}, func(t *testing.T, again func(j job.Job, list []queue.Part, its *bench, restart func()) job.Job) {
		for _, elsewhere := range []bool{false, true} { // the hub that has the end is not that of the job any more
			server := redistest.Start(t)
			its := on(t, redistest.Open(t, server.URL()), queue.Options{})
			other := its
			if elsewhere {
				other = on(t, redistest.Open(t, server.URL()), queue.Options{})
				require.NoError(t, other.Heal(t.Context()))
			}
			require.NoError(t, its.Heal(t.Context()))
			j, list, keys := its.divided("a")
			one := other.claim(other.get(keys[0]), "gpu1")
			must(other.Body(t.Context(), keys[0]))
			require.NoError(t, other.Finish(t.Context(), one.Run, done("old")))
			require.NoError(t, its.Redo(t.Context(), j.Run, keys[0]))
			run := again(j, list, its, func() {
				server.Save()()
				require.NoError(t, its.Heal(t.Context()))
				require.NoError(t, other.Heal(t.Context()))
			}).Run
			require.NoError(t, its.Finish(t.Context(), run, done("new")))
			require.Equal(t, "new", string(must(its.PartEnds(t.Context(), keys))[0].Entry))
		}
	})
}

// claimsLater is claim right after Redis was restarted.
func (b *bench) claimsLater(key string) (j job.Job) {
	require.Eventually(b.t, func() bool {
		var err error
		j, err = b.Claim(b.t.Context(), queue.ClaimRequest{Key: key, Instance: "gpu2", Hub: "hub/1", Upstream: uuid.NewString()})
		return err == nil
	}, 30*time.Second, 50*time.Millisecond)
	return j
}
