package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// Memory for a stored body is allocated by its size before it is read. A short
// body must not get the memory of the largest one.
func TestSizeOfStoredBodies(t *testing.T) {
	t.Parallel()
	c := must.Get(newCodec())(t)
	for _, size := range []int{0, 1, 10, 100, 200, 255, 256, 300, 1000, 100_000, 1 << 20, 3 << 20} {
		stored := c.encodeBody(job.Body{Prompt: []byte(strings.Repeat("x", size))})
		got := unpackedSize(stored)
		require.GreaterOrEqual(t, got, int64(size))
		require.LessOrEqual(t, got, int64(size)+maxBlock+1024, "a body of %d bytes", size)
	}
	require.EqualValues(t, maxUnpacked, unpackedSize([]byte("no frame")))
}

// A trace is a part of the body that hubs which do not know it skip. Without one the body is the
// same as before, byte for byte.
func TestTraceInAStoredBody(t *testing.T) {
	t.Parallel()
	c := must.Get(newCodec())(t)
	with := job.Body{Prompt: []byte("{}"), Extra: []byte("{}"), Outputs: []string{"1"}, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	got := must.Get(c.decodeBody(c.encodeBody(with)))(t)
	require.Equal(t, with, got)
	with.Trace = ""
	data := must.Get(c.expand(c.encodeBody(with)))(t)
	require.Equal(t, "\x01\x02{}\x02\x02{}\x03\x011", string(data))
}

func TestBodyRoundTrip(t *testing.T) {
	t.Parallel()
	c := must.Get(newCodec())(t)
	for _, b := range []job.Body{
		{Prompt: []byte{}, Extra: []byte{}},
		{
			Prompt: []byte(`{"a":NaN}`), Extra: []byte("\x00\xff"), Outputs: []string{"", "9", "57:3"},
			Targets: []byte{}, Other: []byte(`{"workflow_metadata": 1}`), Inputs: bytes.Repeat([]byte("in"), 1<<16),
		},
	} {
		got := must.Get(c.decodeBody(c.encodeBody(b)))(t)
		require.Equal(t, b, got)
	}
}

// A newer hub's fields are skipped.
func TestBodyOfANewerHub(t *testing.T) {
	t.Parallel()
	data := appendField(nil, tagPrompt, []byte("p"))
	data = appendField(data, 77, []byte("future"))
	data = appendField(data, tagExtra, []byte("e"))
	b := must.Get(parseBody(data))(t)
	require.Equal(t, job.Body{Prompt: []byte("p"), Extra: []byte("e")}, b)
}

func TestCorruptValues(t *testing.T) {
	t.Parallel()
	c, err := newCodec()
	require.NoError(t, err)
	_, err = c.decodeBody([]byte("not zstd"))
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = c.decodeBody(c.compress([]byte{tagPrompt, 200}))
	require.ErrorIs(t, err, ErrCorrupt)
	for _, r := range []record{
		{"state": "queued", "fence": "x"},
		{"state": "odd"},
		{"state": "queued", "lost": "5:a"},
		{"state": "queued", "progress": "much"},
	} {
		_, err := r.job()
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

func FuzzParseBody(f *testing.F) {
	f.Add(appendField(appendField(nil, tagPrompt, []byte("p")), tagOutput, []byte("9")))
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := parseBody(data)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		c := must.Get(newCodec())(t)
		again := must.Get(c.decodeBody(c.encodeBody(b)))(t)
		require.Equal(t, string(b.Prompt), string(again.Prompt))
		require.Equal(t, b.Outputs, again.Outputs)
	})
}

func FuzzReadEvent(f *testing.F) {
	f.Add(redis.Pack("queued", "k", "id", "t", "c", "cl", "gpu", "hub", "queued"))
	f.Add(redis.Pack("queued", "k"))
	f.Fuzz(func(t *testing.T, payload string) {
		if e, ok := readEvent(payload); ok {
			require.LessOrEqual(t, len(e.Key)+len(e.ID)+len(e.Client), len(payload))
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add("001:x:key", "queued", "12", "3:abc", "0.5")
	f.Fuzz(func(t *testing.T, rank, state, number, lost, progress string) {
		j, err := record{"rank": rank, "state": state, "fence": number, "lost": lost, "progress": progress}.job()
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.True(t, j.State.Live() || j.State.Ended())
	})
}

func FuzzReadOrphans(f *testing.F) {
	f.Add("k\x001\x00gpu\x00hub\x00u\x00s\x002\x00leased\x000\x000\x00")
	f.Fuzz(func(t *testing.T, text string) {
		var values []string
		for v := range bytes.SplitSeq([]byte(text), []byte{0}) {
			values = append(values, string(v))
		}
		if orphans, err := readOrphans(values); err == nil {
			require.Len(t, values, len(orphans)*orphanFields)
		}
	})
}

func FuzzReadCallbackEvent(f *testing.F) {
	f.Add(redis.Pack("id", "done", "1", "2", "3", "4", "why"))
	f.Add(redis.Pack("id", "done", "1", "2", "x", "4", "\xff"))
	f.Add("7:id")
	f.Fuzz(func(t *testing.T, packed string) {
		e, err := readCallbackEvent(packed, "tenant", "prompt", "url", 1)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.True(t, utf8.ValidString(e.Reason))
	})
}

// A reading is shared by those who asked before it began, and by nobody who asked later: anything
// accepted before a request is in its answer.
func TestReadingsAreShared(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var l listings
		var begun atomic.Int64
		proceed := make(chan struct{})
		read := func(context.Context, []*job.Job) ([]*job.Job, error) {
			n := begun.Add(1)
			<-proceed
			return []*job.Job{{ID: fmt.Sprint(n)}}, nil
		}
		results := make(chan string, 10)
		ask := func(ctx context.Context) {
			go func() {
				jobs, err := l.read(ctx, "t", read)
				if err != nil {
					results <- err.Error()
					return
				}
				results <- jobs[0].ID
			}()
			synctest.Wait()
		}
		ask(t.Context())
		gone, leave := context.WithCancel(t.Context())
		ask(gone) // starts the second reading, and does not wait for it
		ask(t.Context())
		ask(t.Context())
		require.EqualValues(t, 1, begun.Load())
		leave()
		require.Equal(t, context.Canceled.Error(), <-results)
		proceed <- struct{}{}
		require.Equal(t, "1", <-results)
		synctest.Wait()
		ask(t.Context())
		proceed <- struct{}{}
		require.Equal(t, []string{"2", "2"}, []string{<-results, <-results})
		synctest.Wait()
		proceed <- struct{}{}
		require.Equal(t, "3", <-results)
		synctest.Wait()
		require.EqualValues(t, 3, begun.Load())
	})
}

// What is kept about a tenant goes when nobody lists its jobs any more, and the total is bounded: a
// tenant with many jobs pushes out those of others, but not its own.
func TestListingsAreBounded(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var l listings
		list := func(tenant string, n int) (kept int) {
			_, err := l.read(t.Context(), tenant, func(_ context.Context, k []*job.Job) ([]*job.Job, error) {
				kept = len(k)
				jobs := make([]*job.Job, n)
				for i := range jobs {
					jobs[i] = &job.Job{State: job.Queued, ID: strings.Repeat("x", 1<<20)}
				}
				return jobs, nil
			})
			require.NoError(t, err)
			synctest.Wait()
			require.LessOrEqual(t, l.size, int64(maxListed))
			return kept
		}
		list("a", 2)
		list("b", 3)
		require.Equal(t, 2, list("a", 2))
		list("big", 100)
		require.Equal(t, 31, list("big", 100))
		require.Zero(t, list("a", 2), "it was listed longest ago")
		time.Sleep(2 * listedFor)
		list("c", 1)
		require.Len(t, l.tenants, 1)
		require.Positive(t, l.size)
		time.Sleep(2 * listedFor)
		_, err := l.read(t.Context(), "none", func(context.Context, []*job.Job) ([]*job.Job, error) { return nil, errors.New("away") })
		require.EqualError(t, err, "away")
		synctest.Wait()
		require.Zero(t, l.size)
	})
}

// Only parts of a job that cannot change while it waits are kept.
func TestListingsKeepWhatDoesNotChange(t *testing.T) {
	t.Parallel()
	var l listings
	var kept []*job.Job
	for range 2 {
		_, err := l.read(t.Context(), "t", func(_ context.Context, k []*job.Job) ([]*job.Job, error) {
			kept = k
			return []*job.Job{
				{State: job.Queued, ID: "waits"},
				{State: job.Queued, Paused: true},
				{State: job.Queued, Fence: 1},
				{State: job.Queued, DoorUntil: 1},
				{State: job.Leased, Fence: 1},
				{State: job.Running, Fence: 1},
			}, nil
		})
		require.NoError(t, err)
	}
	require.Len(t, kept, 1)
	require.Equal(t, "waits", kept[0].ID)
}

func TestKeptRequirementsAreBounded(t *testing.T) {
	t.Parallel()
	var r requirements
	r.keep("small", []byte("needs"))
	known, unknown := r.of([]string{"small", "other"})
	require.Equal(t, map[string][]byte{"small": []byte("needs")}, known)
	require.Equal(t, []string{"other"}, unknown)
	for n := range 20 {
		r.keep("class"+strconv.Itoa(n), make([]byte, keptRequirements/10))
		require.LessOrEqual(t, r.bytes, keptRequirements)
	}
	r.keep("too large", make([]byte, keptRequirements))
	known, unknown = r.of([]string{"class19", "too large"})
	require.Len(t, known, 1, "the last one that fits")
	require.Equal(t, []string{"too large"}, unknown)
}

// A job may be claimed before the call that accepted it stores its copy. The copy of the claim
// stays: restored from the other one, the job would run twice.
func TestCopyOfAClaimIsNotReplaced(t *testing.T) {
	t.Parallel()
	c := newCopies()
	c.change("key", record{"state": "leased", "fence": "1"}, func(j *copied) { j.held = true })
	c.change("key", record{"state": "queued", "fence": "0"}, func(j *copied) { j.stored = []byte("body") })
	kept, ok := c.get("key")
	require.True(t, ok)
	require.Equal(t, record{"state": "leased", "fence": "1"}, kept.record)
	require.True(t, kept.held)
	require.Equal(t, "body", string(kept.stored), "what only the other call knows is kept")
	c.change("key", record{"state": "queued", "fence": "2"}, func(j *copied) { j.held = false })
	kept, _ = c.get("key")
	require.Equal(t, "queued", kept.record["state"], "a run that was given back")
}
