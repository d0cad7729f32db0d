package dispatch

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// A body that can never be read ends its job after a few attempts, with an error
// that gives the reason. It does not hold up other jobs.
func TestUnreadableBodyEndsItsJob(t *testing.T) {
	type row struct {
		part, value, why string
		claims           int
	}
	sideBySide(t, map[string]row{
		"sealed with another key": {"secret", "sealed elsewhere", "secrets cannot be decrypted", maxUnsealed},
		"damaged":                 {"body", "no zstd", "corrupt value", 1},
		"gone":                    {"body", "", "no such job", 1},
	}, func(t *testing.T, tt row) {
		b := newDispatching(t, 0)
		broken := b.submit(picture)
		b.spoil(tt.part, broken, tt.value)
		good := b.submit(picture)
		b.add(newScripted(t))
		b.reaches(good, job.Done)
		failure := b.failure(broken)
		require.Contains(t, failure, "This prompt cannot run")
		require.Contains(t, failure, tt.why)
		b.leaves(broken)
		claims := func() int { return strings.Count(b.logged(), `goes to an instance" job=`+broken) }
		// A run may have ended before the line about its claim is written.
		eventually(t, func() bool { return claims() >= tt.claims }, deadline, time.Millisecond)
		require.Equal(t, tt.claims, claims())
	})
}

// A client is shown why its job was not taken, and that does not tell where Redis
// is.
func TestReasonsDoNotTellWhereRedisIs(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 0)
	db := redistest.Open(t, "redis://127.0.0.1:1?max_retries=-1")
	err := db.Ping(t.Context())
	require.ErrorIs(t, err, queue.ErrUnavailable)
	require.ErrorContains(t, err, "127.0.0.1:1")
	r := newRun(b.Dispatcher, nil, job.Job{Key: "key"})
	for name, res := range map[string]result{
		"body": r.unreadable(t.Context(), err), "inputs": r.notTaken(fmt.Errorf("files: %w", err)),
	} {
		require.Equal(t, result{kind: excused, cause: Redis, reason: "the hub's queue cannot be reached", anywhere: true}, res, name)
	}
}

// An instance that fails once with a job gets it again after a while.
func TestOneErrorAtSubmit(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 1)
	var posts atomic.Int32
	b.instances[0].on("POST /prompt", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if posts.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	})
	j := b.reaches(b.submit(picture), job.Done)
	require.Len(t, j.Lost, 1)
	require.Contains(t, j.Lost[0], "did not take it")
}

// A claim whose reply is lost is repeated with the same id. The job runs at once
// and loses no attempt.
func TestReplyOfAClaimIsLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	direct := must(queue.New(redistest.Open(t, server.URL()), queue.Options{}))
	var key atomic.Value
	var losses atomic.Int32
	proxy := redistest.NewProxy(t, server.Addr(), func() bool {
		k, _ := key.Load().(string)
		if k == "" || losses.Load() >= 12 { // more often than a script is sent again
			return false
		}
		j, err := direct.Get(t.Context(), k)
		return err == nil && j.State == job.Leased && losses.Add(1) > 0
	})
	db := redistest.Open(t, proxy.URL())
	b := newDispatching(t, 1, func(_ *dispatching, c *Config) {
		c.Queue = must(queue.New(db, queue.Options{}))
	})
	s := submission(picture)
	key.Store(s.Key)
	must(direct.Enqueue(t.Context(), s))
	j := b.reaches(s.Key, job.Done)
	require.Positive(t, losses.Load())
	require.Empty(t, j.Lost)
	require.Equal(t, 1, j.Attempts)
	require.Equal(t, 1, b.instances[0].Started())
}

// A result that went over a lost socket is made again only a few times, because
// each costs GPU time.
func TestRerunsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(strings.Replace(working, "SaveImage", "SaveImageWebsocket", 1))
		b.record(key, "reruns", queue.MaxReruns-1)
		b.runs(key)
		b.instances[0].DropSockets()
		require.Contains(t, b.failure(key), "went over a socket that was lost")
	})
}

// A job that no instance can run does not wait forever if its body cannot be read
// either.
func TestUnrunnableJobWithoutABody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(picture, func(s *queue.Submission) {
			needs := catalog.Requirements{Classes: []string{"Nowhere"}}
			s.Class, s.Body.Requires = needs.Signature(), needs.Encode()
		})
		b.spoil("body", key, "no zstd")
		b.set(func(s *Settings) { s.UnrunnableTimeout = time.Millisecond })
		require.Contains(t, b.failure(key), "No instance could run this prompt")
	})
}
