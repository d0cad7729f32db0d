package queue_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

func errorIs(err, target error) bool { return errors.Is(err, target) }

// history returns a tenant's entries as id:json.
func history(t *testing.T, b *bench, tenant string, p queue.Page) []string {
	entries := must(b.History(t.Context(), tenant, p))
	out := []string{}
	for _, e := range entries {
		text := must(e.JSON())
		require.Equal(t, tenant, e.Tenant)
		out = append(out, e.ID+":"+string(text))
	}
	return out
}

func requireHistory(t *testing.T, b *bench, tenant string, want ...string) {
	require.Equal(t, append([]string{}, want...), history(t, b, tenant, queue.Page{}))
}

// finished makes a job that has ended.
func (b *bench) finished(id string, change ...func(*queue.Submission)) job.Job {
	j := b.claim(b.enqueue(id, change...), "gpu")
	require.NoError(b.t, b.Finish(b.t.Context(), j.Run, done(id)))
	return b.get(j.Key)
}

func TestHistoryPages(t *testing.T) {
	n := func(i int) *int { return &i }
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		for i := range 4 {
			b.finished(fmt.Sprint(i))
		}
		for _, c := range []struct {
			max, offset *int
			want        string
		}{
			{nil, nil, "0123"},
			{n(2), nil, "23"},
			{n(9), nil, "0123"},
			{n(0), nil, ""},
			{n(-3), nil, ""},
			{n(2), n(0), "01"},
			{n(2), n(1), "12"},
			{n(2), n(3), "3"},
			{n(2), n(4), ""},
			{n(2), n(9), ""},
			{nil, n(2), "23"},
			{nil, n(-1), "0123"},
			{n(2), n(-1), "23"},
			{n(0), n(1), "1"}, // ComfyUI checks the bound after adding
			{n(-1), n(1), "1"},
		} {
			var got strings.Builder
			for _, e := range history(t, b, "tenant", queue.Page{Max: c.max, Offset: c.offset}) {
				id, _, _ := strings.Cut(e, ":")
				got.WriteString(id)
			}
			require.Equal(t, c.want, got.String())
		}
		requireHistory(t, b, "other")
	})
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		o    queue.Options
		kept []string
		also []string // what another tenant keeps
	}{
		{"entries", queue.Options{HistoryEntries: 3}, []string{"3:3", "4:4"}, []string{"other's:other's"}},
		{"own entries", queue.Options{TenantHistory: 2}, []string{"3:3", "4:4"}, []string{"other's:other's"}},
		{"bytes", queue.Options{HistoryBytes: 60}, []string{"3:3", "4:4"}, []string{"other's:other's"}},
		{"never the newest", queue.Options{HistoryEntries: 1}, []string{"4:4"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, c.o, func(t *testing.T, b *bench) {
				b.finished("other's", func(s *queue.Submission) { s.Tenant = "other" })
				for i := range 5 {
					b.finished(fmt.Sprint(i))
				}
				requireHistory(t, b, "tenant", c.kept...)
				requireHistory(t, b, "other", c.also...)
				require.ErrorIs(t, errOf(b.Find(t.Context(), "tenant", "0")), queue.ErrNotFound, "the job goes with its entry")
				require.Len(t, must(b.Undelivered(t.Context(), "tenant", "client")), len(c.kept))
			})
		})
	}
}

func TestDeleteHistory(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		for i := range 6 {
			b.finished(fmt.Sprint(i), func(s *queue.Submission) {
				if i >= 3 {
					s.Caller = "second"
				}
			})
		}
		b.finished("0", func(s *queue.Submission) { s.Tenant = "other" })
		b.claim(b.enqueue("live"), "gpu")
		require.NoError(t, b.DeleteHistory(ctx, "tenant", []string{"0", "unknown", "live", "0"}))
		requireHistory(t, b, "tenant", "1:1", "2:2", "3:3", "4:4", "5:5")
		require.ErrorIs(t, errOf(b.HistoryEntry(ctx, "tenant", "0")), queue.ErrNotFound)
		require.ErrorIs(t, errOf(b.HistoryEntry(ctx, "tenant", "live")), queue.ErrNotFound)
		require.NoError(t, b.ClearHistory(ctx, "tenant", "second"))
		requireHistory(t, b, "tenant", "1:1", "2:2")
		require.NoError(t, b.ClearHistory(ctx, "tenant", ""))
		requireHistory(t, b, "tenant")
		requireHistory(t, b, "other", "0:0")
		require.Equal(t, []string{"live"}, ids(must(b.Live(ctx, "tenant"))))
	})
}

// History expires, however many entries. One that replaces one with the same id takes its place, but
// still counts as the youngest.
func TestExpireHistory(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		old := b.enqueue("a")
		require.NoError(t, b.Finish(ctx, b.claim(old, "gpu").Run, done("old")))
		b.finished("b")
		young := b.claim(b.enqueue("a", func(s *queue.Submission) { s.BodyHash = "another" }), "gpu2")
		end := b.finished("c").FinishedAt
		require.Eventually(t, func() bool {
			now := must(b.db.Now(ctx))
			return now.UnixMilli() > end
		}, 30*time.Second, time.Millisecond)
		require.NoError(t, b.Finish(ctx, young.Run, done("young")))
		requireHistory(t, b, "tenant", "a:young", "b:b", "c:c")
		require.NoError(t, b.ExpireHistory(ctx, "", time.UnixMilli(end)))
		requireHistory(t, b, "tenant", "a:young")
		for i := range 40 {
			b.finished(fmt.Sprint(i))
		}
		require.NoError(t, b.ExpireHistory(ctx, "", time.Now().Add(time.Hour)))
		requireHistory(t, b, "tenant")
	})
}

// The files that an entry names count as used when its job ends.
func TestFilesAreUsedAtTheEnd(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx, index := t.Context(), b.db.Key("files", "used", "test")
		for _, member := range []string{"a", "b", "c"} {
			require.NoError(t, b.db.Client().ZAdd(ctx, index, goredis.Z{Score: 1, Member: member}).Err())
		}
		run := b.claim(b.enqueue("1"), "gpu").Run
		outcome := done("1")
		outcome.Uses = queue.Uses{Indexes: []string{index}, Members: []string{"a", "c", "gone"}}
		require.NoError(t, b.Finish(ctx, run, outcome))
		got := must(b.db.Client().ZRangeWithScores(ctx, index, 0, -1).Result())
		end := float64(b.get(run.Key).FinishedAt)
		require.Equal(t, []goredis.Z{{Score: 1, Member: "b"}, {Score: end, Member: "a"}, {Score: end, Member: "c"}}, got)
	})
}

// An entry is returned unchanged, whatever bytes it contains.
func TestEntryBytes(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		for i, entry := range []string{"", `{"a":NaN}`, "\x00\xff", strings.Repeat(`{"text": "x"}`, 100000)} {
			j := b.claim(b.enqueue(fmt.Sprint(i)), "gpu")
			require.NoError(t, b.Finish(t.Context(), j.Run, done(entry)))
			require.Equal(t, entry, string(must(must(b.HistoryEntry(t.Context(), "tenant", fmt.Sprint(i))).JSON())))
		}
	})
}

// Nothing is left once everything has ended and is forgotten.
func TestNothingLeaks(t *testing.T) {
	each(t, queue.Options{Tombstone: time.Millisecond, MaxAttempts: 2}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.finished("a")
		b.finished("b", func(s *queue.Submission) { s.Class = "second"; s.Body.Secrets = []byte("x") })
		must(b.Cancel(ctx, b.enqueue("c").Key))
		run := b.claim(b.enqueue("d"), "gpu").Run
		must(b.Requeue(ctx, run, queue.RequeueOptions{Reason: "lost"}))
		require.NoError(t, b.FailWaiting(ctx, run.Key, queue.Outcome{Entry: []byte("{}")}))
		require.NoError(t, b.ClearHistory(ctx, "tenant", ""))
		left := func() []string {
			keys := must(b.db.Client().Keys(ctx, b.db.Key("q", "*")).Result())
			// These expire by themselves.
			return slices.DeleteFunc(keys, func(k string) bool { return strings.HasPrefix(k, b.db.Key("q", "forgotten", "")) })
		}
		require.Eventually(t, func() bool {
			must(b.Sweep(ctx, "hub/1", 1))
			return len(left()) == 4
		}, time.Minute, 5*time.Millisecond, "left: %v", left())
		require.ElementsMatch(t, []string{b.db.Key("q", "counters"), b.db.Key("q", "numbers"), b.db.Key("q", "raised"), b.db.Key("q", "tags")}, left())
		require.Equal(t, "0", must(b.db.Client().HGet(ctx, b.db.Key("q", "counters"), "bytes").Result()))
	})
}

// endedOf makes an ended job of a tenant, with an entry.
func (b *bench) endedOf(tenant, id, entry string) {
	j := b.claim(b.enqueue(id, func(s *queue.Submission) { s.Tenant = tenant }), "gpu of "+tenant)
	require.NoError(b.t, b.Finish(b.t.Context(), j.Run, done(entry)))
}

func (b *bench) entriesOf(tenant string) int {
	keys := must(b.EndedKeys(b.t.Context(), tenant))
	return len(keys)
}

// One tenant's thousands of jobs never push out the few jobs of another.
func TestHistoryIsSharedFairly(t *testing.T) {
	const bound = 32
	each(t, queue.Options{HistoryEntries: bound}, func(t *testing.T, b *bench) {
		random := rand.New(rand.NewPCG(1, 2))
		for n := range 5 {
			b.endedOf("small", fmt.Sprint("s", n), "{}")
		}
		tenants := []string{"small", "b", "c", "d"}
		had := map[string]int{"small": 5}
		for n := range 200 {
			tenant := "b" // most are its own
			if random.IntN(10) == 0 {
				tenant = []string{"c", "d"}[random.IntN(2)]
			}
			b.endedOf(tenant, fmt.Sprint("j", n), "{}")
			had[tenant]++
			total := 0
			for _, other := range tenants {
				now := b.entriesOf(other)
				total += now
				if now < had[other] {
					require.GreaterOrEqual(t, now, bound/len(tenants), "%s lost an entry below its fair share", other)
					require.Equal(t, had[other]-1, now, "only what is too much goes")
				}
				had[other] = now
			}
			require.LessOrEqual(t, total, bound)
		}
		require.Equal(t, 5, b.entriesOf("small"))
	})
}

// Bytes are shared like entries: a tenant's huge entries push out its own.
func TestHistoryBytesAreSharedFairly(t *testing.T) {
	each(t, queue.Options{HistoryBytes: 4000}, func(t *testing.T, b *bench) {
		random := rand.New(rand.NewPCG(3, 4))
		for n := range 10 {
			b.endedOf("small", fmt.Sprint("s", n), "{}")
		}
		for n := range 20 {
			var huge strings.Builder
			for range 2000 {
				huge.WriteByte(byte(random.IntN(256))) // so that it does not compress
			}
			b.endedOf("large", fmt.Sprint("l", n), huge.String())
			require.Equal(t, 10, b.entriesOf("small"))
			require.LessOrEqual(t, b.entriesOf("large"), 2)
			require.Positive(t, b.entriesOf("large"), "the newest can be read")
		}
	})
}

// Entries that a hub of an earlier version wrote are counted at the next recount, exactly once.
func TestHistoryOfAnOlderHubIsCounted(t *testing.T) {
	each(t, queue.Options{HistoryEntries: 30}, func(t *testing.T, b *bench) {
		ctx, shares := t.Context(), []string{b.db.Key("q", "shares", "entries"), b.db.Key("q", "shares", "bytes")}
		for n := range 20 {
			b.endedOf("old", fmt.Sprint(n), "{}")
		}
		before := must(b.db.Client().ZScore(ctx, shares[1], "old").Result())
		keys := must(b.EndedKeys(ctx, "old"))
		require.NoError(t, b.db.Client().Del(ctx, shares...).Err())
		for _, key := range keys {
			require.NoError(t, b.db.Client().HDel(ctx, b.db.Key("q", "job", key), "shared").Err())
		}
		b.endedOf("new", "1", "{}")
		for range 2 {
			require.NoError(t, b.RecountHistory(ctx))
			require.InDelta(t, before, must(b.db.Client().ZScore(ctx, shares[1], "old").Result()), 0)
		}
		for n := range 30 {
			b.endedOf("new", fmt.Sprint("n", n), "{}")
		}
		require.Equal(t, 15, b.entriesOf("old"))
		require.Equal(t, 15, b.entriesOf("new"))
	})
}
