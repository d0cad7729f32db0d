package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
)

func TestEnqueueTwice(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		s := submission("a")
		first := must(b.Enqueue(ctx, s))
		again := func(s queue.Submission) queue.Accepted { return must(b.Enqueue(ctx, s)) }
		same := again(s)
		require.True(t, same.Existing, "the same key")
		require.Equal(t, first.Job, same.Job)

		s.Key = uuid.NewString()
		same = again(s)
		require.True(t, same.Existing, "the same id and body")
		require.Equal(t, first.Job, same.Job)

		claimed := b.claim(first.Job, "gpu")
		require.Equal(t, claimed, again(s).Job, "also when it runs")
		require.NoError(t, b.Finish(ctx, claimed.Run, done("{}")))
		require.Equal(t, job.Done, again(s).Job.State, "also when it has ended")

		s.Key, s.Tenant = uuid.NewString(), "other"
		require.False(t, again(s).Existing, "ids are unique per tenant only")

		require.NoError(t, b.DeleteHistory(ctx, "tenant", []string{"a"}))
		s.Key, s.Tenant = uuid.NewString(), "tenant"
		require.False(t, again(s).Existing, "a deleted job is forgotten")

		require.Len(t, must(b.Live(ctx, "tenant")), 1)
	})
}

func TestNumbers(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		number := func(f float64) func(*queue.Submission) { return func(s *queue.Submission) { s.Number = &f } }
		front := func(s *queue.Submission) { s.Front = true }
		elsewhere := func(s *queue.Submission) { s.Tenant = "other" }

		require.Equal(t, "0", b.enqueue("front at zero", front).Number)
		require.Equal(t, "1", b.enqueue("one").Number)
		require.EqualValues(t, 2, must(b.TakeNumber(ctx, "tenant")))
		require.Equal(t, "-3", b.enqueue("front", front).Number)
		require.Equal(t, "2.0", b.enqueue("explicit", number(2)).Number)
		require.Equal(t, "1e+22", b.enqueue("huge", number(1e22)).Number)
		require.Equal(t, "1e+308", b.enqueue("nan", number(math.NaN())).Number, "every parser must read it")
		require.Equal(t, "-1e+308", b.enqueue("infinite", number(math.Inf(-1))).Number)
		require.Equal(t, "4", b.enqueue("four").Number, "explicit numbers do not consume")
		require.Equal(t, "0", b.enqueue("other", elsewhere).Number)
		b.enqueue("first", func(s *queue.Submission) { s.Priority = 1 })
		b.enqueue("last", func(s *queue.Submission) { s.Priority = -1000 })

		heads := must(b.Peek(ctx, []string{"class"}, 100))
		require.Equal(t, []string{
			"first", "infinite", "front", "front at zero", "other", "one", "explicit", "four", "huge", "nan", "last",
		}, ids(heads))
		w := must(b.Window(ctx, queue.Wanted{}, 0, 100))
		require.Equal(t, []string{
			"other", "first", "infinite", "front", "front at zero", "one", "explicit", "four", "huge", "nan", "last",
		}, ids(w.Jobs), "numbers count within a tenant")
		for i, position := range must(b.Positions(ctx, w.Jobs...)) {
			require.Equal(t, i, position)
		}
	})
}

// The script computes the same ranks as package job.
func TestRanksAgree(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		setCounter := redis.NewScript("set", redis.Write, `write('HSET', key('q', 'numbers'), ARGV[1], ARGV[2]) return {'ok'}`)
		numbers := []int64{0, 1, 2, 3, 7, 8, 255, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 + 1, 1<<52 - 1, 1<<53 - 2}
		for i, n := range numbers {
			for _, front := range []bool{false, true} {
				for _, priority := range []int{-100, 0, 100} {
					name := strconv.Itoa(i) + strconv.FormatBool(front) + strconv.Itoa(priority)
					must(b.db.Run(t.Context(), setCounter, name, n))
					j := b.enqueue(name, func(s *queue.Submission) { s.Tenant, s.Front, s.Priority = name, front, priority })
					value := must(strconv.ParseFloat(j.Number, 64))
					require.Equal(t, n, int64(math.Abs(value)))
					require.True(t, strings.HasPrefix(j.Rank, job.RankPrefix(priority, value)), "%d: %s", n, j.Rank)
				}
			}
		}
	})
}

// Clients and tenants stay separate, whatever their names.
func TestOddNames(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		names := []string{"a:b", "a", "b:", "{x}", "\x00\xff\xfe", "*", "1:a1:b", " ", strings.Repeat("long", 500)}
		for i, name := range names {
			j := b.enqueue(name, func(s *queue.Submission) {
				s.Tenant, s.Caller, s.Client, s.Class, s.BodyHash = name, name, name, name, name
				s.Body.Requires = []byte(name)
				s.Body.Prompt = []byte(name)
			})
			require.Equal(t, name, j.ID)
			require.Equal(t, name, j.Client)
			claimed := b.claim(j, "gpu"+strconv.Itoa(i)+name)
			require.Equal(t, name, string(must(b.Body(ctx, j.Key)).Requires))
			if i%2 == 0 {
				continue
			}
			require.NoError(t, b.Finish(ctx, claimed.Run, done(name)))
		}
		for i, name := range names {
			require.Len(t, must(b.Live(ctx, name)), 1-i%2)
			require.Equal(t, 1-i%2, must(b.Count(ctx, name)))
			require.Len(t, must(b.Undelivered(ctx, name, name)), i%2)
			require.Equal(t, name, must(b.Find(ctx, name, name)).Caller)
		}
	})
}

func TestSecrets(t *testing.T) {
	each(t, queue.Options{Sealer: vault("one")}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		j := b.enqueue("a", func(s *queue.Submission) { s.Body.Secrets = []byte("very secret") })
		for _, key := range must(b.db.Client().Keys(ctx, "*").Result()) {
			if b.db.Client().Type(ctx, key).Val() == "string" {
				require.NotContains(t, b.db.Client().Get(ctx, key).Val(), "secret")
			}
		}
		stranger := on(t, b.db, queue.Options{Sealer: vault("two")})
		body, err := stranger.Body(ctx, j.Key)
		require.ErrorIs(t, err, queue.ErrSecrets)
		require.NotEmpty(t, body.Prompt, "the rest can be read")
		sibling := on(t, b.db, queue.Options{Sealer: vault("one")})
		_, err = on(t, b.db, queue.Options{Sealer: noKeys{}}).Body(ctx, j.Key)
		require.ErrorIs(t, err, queue.ErrUnavailable)
		require.NotErrorIs(t, err, queue.ErrSecrets, "the key may be there later")
		body = must(sibling.Body(ctx, j.Key))
		require.Equal(t, "very secret", string(body.Secrets))
		bodies := must(b.Bodies(ctx, []string{j.Key, "unknown"}))
		require.Len(t, bodies, 1)
		require.Empty(t, bodies[j.Key].Secrets, "listings get none")

		require.NoError(t, b.Finish(ctx, b.claim(j, "gpu").Run, done("{}")))
		require.Zero(t, must(b.db.Client().Exists(ctx, b.db.Key("q", "secret", j.Key)).Result()))
	})
}

func vault(secret string) *queue.Vault { return must(queue.NewVault([]byte(secret))) }

// noKeys is a Sealer whose keys are unavailable.
type noKeys struct{}

func (noKeys) Seal([]byte, []byte) ([]byte, error) { return nil, errors.New("no keys") }

func (noKeys) Open(context.Context, []byte, []byte) ([]byte, error) {
	return nil, fmt.Errorf("no keys: %w", queue.ErrUnavailable)
}

// A prompt with API keys is refused until the key that seals them is there. It is
// not stored unsealed.
func TestNoKeyForSecrets(t *testing.T) {
	each(t, queue.Options{Sealer: noKeys{}}, func(t *testing.T, b *bench) {
		_, err := b.Enqueue(t.Context(), submission("a", func(s *queue.Submission) { s.Body.Secrets = []byte("very secret") }))
		require.ErrorIs(t, err, queue.ErrUnavailable)
		require.Empty(t, must(b.Live(t.Context(), "")))
		b.enqueue("b")
	})
}

func TestTombstones(t *testing.T) {
	each(t, queue.Options{Tombstone: time.Millisecond}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		older := b.enqueue("a")
		require.NoError(t, b.Finish(ctx, b.claim(older, "gpu").Run, done("{}")))
		j := b.enqueue("a", func(s *queue.Submission) { s.BodyHash = "other" })
		alone := b.enqueue("b")
		for _, key := range []string{j.Key, alone.Key} {
			must(b.Cancel(ctx, key))
		}
		require.Eventually(t, func() bool {
			must(b.Sweep(ctx, "hub/1", 1))
			_, err := b.Get(ctx, j.Key)
			_, err2 := b.Get(ctx, alone.Key)
			return errorIs(err, queue.ErrNotFound) && errorIs(err2, queue.ErrNotFound)
		}, time.Minute, 5*time.Millisecond)
		require.Equal(t, older.Key, must(b.Find(ctx, "tenant", "a")).Key, "the ended one can be found again")
		require.ErrorIs(t, errOf(b.Find(ctx, "tenant", "b")), queue.ErrNotFound)
	})
}

// atDoor marks a submission whose client is waiting for an answer.
func atDoor(s *queue.Submission) { s.Door = time.Hour }

// A refusal either reaches the client or comes too late. There is nothing in between.
func TestDoor(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		older := b.claim(b.enqueue("id", func(s *queue.Submission) { s.BodyHash = "older" }), "gpu")
		require.NoError(t, b.Finish(ctx, older.Run, done(`{"older": true}`)))

		j := b.enqueue("id", atDoor)
		require.True(t, j.AtDoor(time.Now()))
		requireListed(t, b)
		require.Equal(t, []string{"id"}, ids(must(b.Live(ctx, ""))), "what it needs is kept")
		run := b.claim(j, "gpu").Run
		require.NoError(t, b.Reject(ctx, run, []byte(`{"error": "no"}`)))
		require.NoError(t, b.Reject(ctx, run, []byte(`{"error": "no"}`)), "the same refusal again")
		for range 2 { // a hub that lost the first answer asks again
			answer, refused, err := b.Admit(ctx, j.Key)
			require.NoError(t, err)
			require.True(t, refused)
			require.JSONEq(t, `{"error": "no"}`, string(answer))
		}
		requireListed(t, b)
		live, waiting, _, err := b.CountAll(ctx)
		require.NoError(t, err)
		require.Zero(t, live+waiting)
		require.Equal(t, older.Key, must(b.Find(ctx, "tenant", "id")).Key, "the id is the older job's again")
		requireHistory(t, b, "tenant", `id:{"older": true}`)
		require.ErrorIs(t, errOf(b.Body(ctx, j.Key)), queue.ErrNotFound)
		require.ErrorIs(t, b.Finish(ctx, run, done(`{}`)), queue.ErrStale)
		b.claim(b.enqueue("next", atDoor), "gpu") // the instance is free
	})
}

// Once the client has been told that its prompt is accepted, that cannot be taken back.
func TestDoorClosed(t *testing.T) {
	eachOf(t, queue.Options{}, map[string]func(t *testing.T, b *bench, j job.Job) job.Run{
		"admitted while it waits": func(t *testing.T, b *bench, j job.Job) job.Run {
			_, refused, err := b.Admit(t.Context(), j.Key)
			require.NoError(t, err)
			require.False(t, refused)
			return b.claim(j, "gpu").Run
		},
		"admitted while it is asked": func(t *testing.T, b *bench, j job.Job) job.Run {
			run := b.claim(j, "gpu").Run
			_, refused, err := b.Admit(t.Context(), j.Key)
			require.NoError(t, err)
			require.False(t, refused)
			return run
		},
		"started": func(t *testing.T, b *bench, j job.Job) job.Run {
			run := b.claim(j, "gpu").Run
			require.NoError(t, b.Started(t.Context(), run))
			return run
		},
		"given back and taken again": func(t *testing.T, b *bench, j job.Job) job.Run {
			back := must(b.Requeue(t.Context(), b.claim(j, "gpu").Run, queue.RequeueOptions{Excused: true}))
			require.True(t, back.AtDoor(time.Now()), "another instance may answer for it")
			_, _, err := b.Admit(t.Context(), j.Key)
			require.NoError(t, err)
			return b.claim(j, "gpu2").Run
		},
	}, func(t *testing.T, b *bench, pass func(t *testing.T, b *bench, j job.Job) job.Run) {
		run := pass(t, b, b.enqueue("id", atDoor))
		require.ErrorIs(t, b.Reject(t.Context(), run, []byte(`{}`)), queue.ErrAnswered)
		requireListed(t, b, "id")
		require.NoError(t, b.Finish(t.Context(), run, done(`{}`)))
		requireHistory(t, b, "tenant", "id:{}")
	})
}

// The hub at the door may die. The job then goes on as an accepted one.
func TestDoorOfADeadHub(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j := b.enqueue("id", func(s *queue.Submission) { s.Door = time.Millisecond })
		require.Eventually(t, func() bool {
			live, err := b.Live(t.Context(), "tenant")
			return err == nil && len(live) == 1
		}, time.Minute, time.Millisecond)
		run := b.claim(j, "gpu").Run
		require.ErrorIs(t, b.Reject(t.Context(), run, []byte(`{}`)), queue.ErrAnswered)
	})
}

// Cancelling a job at the door succeeds, and its client is told 200, as if the
// cancel had come a moment later.
func TestDoorAndCancel(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		j := b.enqueue("waiting", atDoor)
		must(b.Cancel(ctx, j.Key))
		_, refused, err := b.Admit(ctx, j.Key)
		require.NoError(t, err)
		require.False(t, refused)
		requireListed(t, b)

		run := b.claim(b.enqueue("taken", atDoor), "gpu").Run
		must(b.Cancel(ctx, run.Key))
		require.NoError(t, b.Reject(ctx, run, []byte(`{}`)), "it was never there to be cancelled")
		requireListed(t, b)
		requireHistory(t, b, "tenant")
		require.ErrorIs(t, b.Reject(ctx, job.Run{Key: run.Key, Fence: run.Fence - 1}, nil), queue.ErrStale)
	})
}

// requireListed checks what the listings of the tenant and of the caller show.
func requireListed(t *testing.T, b *bench, want ...string) {
	of := must(b.Live(t.Context(), "tenant"))
	require.ElementsMatch(t, want, ids(of))
	of = must(b.LiveOf(t.Context(), "caller"))
	require.ElementsMatch(t, want, ids(of))
}
