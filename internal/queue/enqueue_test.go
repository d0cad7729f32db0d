package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

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
		again := func(s queue.Submission) queue.Accepted {
			t.Helper()
			return must(b.Enqueue(ctx, s))
		}
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

func TestAnIDIsTakenOver(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		other := func(s *queue.Submission) { s.BodyHash = "other" }
		old := b.claim(b.enqueue("a"), "gpu")
		b.enqueue("b")
		young := b.enqueue("a", other)
		require.NotEqual(t, old.Key, young.Key)
		require.Equal(t, young, must(b.Find(ctx, "tenant", "a")))
		live := must(b.Live(ctx, "tenant"))
		require.Equal(t, []string{"a", "b", "a"}, ids(live), "the older one runs on")

		require.NoError(t, b.Finish(ctx, old.Run, done(`"old"`)))
		require.NoError(t, b.FailWaiting(ctx, live[1].Key, queue.Outcome{Entry: []byte(`"b"`)}))
		requireHistory(t, b, "tenant", `a:"old"`, `b:"b"`)
		require.NoError(t, b.Finish(ctx, b.claim(young, "gpu").Run, done(`"young"`)))
		requireHistory(t, b, "tenant", `a:"young"`, `b:"b"`)
		require.ErrorIs(t, errOf(b.Get(ctx, old.Key)), queue.ErrNotFound, "its entry is gone")
	})
}

func TestNumbers(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		number := func(f float64) func(*queue.Submission) {
			return func(s *queue.Submission) { s.Number = &f }
		}
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
		for i, j := range w.Jobs {
			require.Equal(t, i, must(b.Position(ctx, j.Key)))
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
	each(t, queue.Options{Sealer: vault(t, "one")}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		j := b.enqueue("a", func(s *queue.Submission) { s.Body.Secrets = []byte("very secret") })
		for _, key := range must(b.db.Client().Keys(ctx, "*").Result()) {
			if b.db.Client().Type(ctx, key).Val() == "string" {
				require.NotContains(t, b.db.Client().Get(ctx, key).Val(), "secret")
			}
		}
		stranger := on(t, b.db, queue.Options{Sealer: vault(t, "two")})
		body, err := stranger.Body(ctx, j.Key)
		require.ErrorIs(t, err, queue.ErrSecrets)
		require.NotEmpty(t, body.Prompt, "the rest can be read")
		sibling := on(t, b.db, queue.Options{Sealer: vault(t, "one")})
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

func vault(t *testing.T, secret string) *queue.Vault {
	t.Helper()
	return must(queue.NewVault([]byte(secret)))
}

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
