package queue_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// Accepted jobs and ended jobs survive a kill -9, which leaves the journal as it is on disk at that
// moment.
func TestEmbeddedHubIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := on(t, redistest.OpenDir(t, dir), queue.Options{})
	b.finished("ended")
	for i := range 20 {
		b.enqueue(fmt.Sprint("waiting", i))
	}
	must(b.Cancel(t.Context(), b.enqueue("cancelled").Key))
	running := b.claim(b.enqueue("running"), "gpu")
	b.enqueue("after") // its sync also covers the claim
	requireAfterCrash := func(dir string) {
		again := on(t, redistest.OpenDir(t, dir), queue.Options{})
		requireHistory(t, again, "tenant", "ended:ended")
		heads := must(again.Peek(t.Context(), []string{"class"}, 100))
		require.Len(t, heads, 21)
		runs := must(again.Runs(t.Context()))
		require.Equal(t, []job.Run{running.Run}, runs)
		require.NotEmpty(t, must(again.Body(t.Context(), heads[0].Key)).Prompt)
		require.NoError(t, again.Finish(t.Context(), must(again.Adopt(t.Context(), runs[0], "hub/2")).Run, done(`"adopted"`)))
		requireHistory(t, again, "tenant", "ended:ended", `running:"adopted"`)
		require.Equal(t, "24", again.enqueue("next").Number, "the counter goes on")
	}
	data := must(os.ReadFile(filepath.Join(dir, "queue.aof")))
	copied := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(copied, "queue.aof"), data, 0o600))
	requireAfterCrash(copied)
	require.NoError(t, b.db.Close())
	requireAfterCrash(dir)
}

func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := on(t, redistest.Open(t, server.URL()), queue.Options{})
	ctx := t.Context()
	j, waiting := b.enqueue("a"), b.enqueue("waiting")
	run := b.claim(j, "gpu").Run
	events := b.Subscribe(ctx)
	require.Equal(t, queue.Resync, (<-events).Kind)
	server.Kill()

	s := submission("b")
	require.ErrorIs(t, errOf(b.Enqueue(ctx, s)), redis.ErrUnavailable)
	require.ErrorIs(t, errOf(b.Live(ctx, "")), redis.ErrUnavailable, "a listing is never shorter than it is")
	require.ErrorIs(t, errOf(b.History(ctx, "tenant", queue.Page{})), redis.ErrUnavailable)
	require.ErrorIs(t, errOf(b.Peek(ctx, []string{"class"}, 1)), redis.ErrUnavailable)
	require.ErrorIs(t, errOf(b.Body(ctx, waiting.Key)), redis.ErrUnavailable)
	_, err := b.Body(ctx, j.Key)
	require.NoError(t, err, "the body of a run of its own needs no Redis")
	require.ErrorIs(t, b.Finish(ctx, run, done("{}")), redis.ErrUnavailable)

	server.Start()
	require.Eventually(t, func() bool { return b.Finish(ctx, run, done("{}")) == nil },
		time.Minute, 20*time.Millisecond, "a result that was held is written later")
	require.Equal(t, job.Done, b.get(j.Key).State)
	for e := range events {
		if e.Kind == queue.Resync {
			break
		}
	}
	must(b.Enqueue(ctx, s))
}

// A master that is told to accept nothing without a replica is unavailable while it has none: a
// prompt is refused, rather than accepted and then lost in a failover. What was accepted before can
// still be read.
func TestAMasterWithoutItsReplicasAcceptsNothing(t *testing.T) {
	t.Parallel()
	b := on(t, redistest.Open(t, redistest.Start(t).URL()), queue.Options{})
	replicas := func(least string) {
		require.NoError(t, b.db.Client().ConfigSet(t.Context(), "min-replicas-to-write", least).Err())
	}
	first := b.enqueue("first")
	replicas("1")
	second := submission("second")
	require.ErrorIs(t, errOf(b.Enqueue(t.Context(), second)), queue.ErrUnavailable)
	require.Equal(t, first.ID, b.get(first.Key).ID)
	require.ErrorIs(t, errOf(b.Get(t.Context(), second.Key)), queue.ErrNotFound)
	replicas("0")
	require.False(t, must(b.Enqueue(t.Context(), second)).Existing, "the refused call left nothing")
}

// accepted posts a prompt until it is accepted: on a busy machine, a replica may take longer than
// allowed. It returns the job's key.
func (b *bench) accepted(s queue.Submission) (key string) {
	require.Eventually(b.t, func() bool {
		a, err := b.Enqueue(b.t.Context(), s)
		key = a.Job.Key
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	return key
}

// With Options.Replicas, a prompt is accepted once a replica has it: it survives if the master is
// lost a moment later.
func TestWhatWasAcceptedOutlivesTheMaster(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := master.Replica()
	b := on(t, redistest.OpenReplicated(t, master.URL(), 1), queue.Options{})
	var keys []string
	for n := range 20 {
		keys = append(keys, b.accepted(submission(fmt.Sprint(n))))
	}
	master.Kill()
	replica.Promote()
	after := on(t, redistest.Open(t, replica.URL()), queue.Options{})
	for _, key := range keys {
		require.Equal(t, key, after.get(key).Key)
	}
}

// A prompt that a lagging replica does not confirm is not accepted although the master has it: sent
// again, it is the same job. After the first one nothing is written until the replica has caught
// up, and nobody waits for that.
func TestALaggingReplica(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := master.Replica()
	b := on(t, redistest.OpenReplicated(t, master.URL(), 1), queue.Options{})
	first := submission("first")
	b.accepted(first)
	replica.Pause()
	t.Cleanup(replica.Resume)
	doubtful := submission("doubtful")
	_, err := b.Enqueue(t.Context(), doubtful)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	require.ErrorContains(t, err, "0 of 1 replicas have confirmed within 1s")
	require.Equal(t, doubtful.ID, b.get(doubtful.Key).ID, "the master has it")

	var work sync.WaitGroup
	for n := range 50 {
		work.Go(func() {
			s := submission(fmt.Sprint("later ", n))
			assert.ErrorIs(t, errOf(b.Enqueue(t.Context(), s)), queue.ErrUnavailable)
			assert.ErrorIs(t, errOf(b.Get(t.Context(), s.Key)), queue.ErrNotFound)
		})
	}
	work.Wait()
	again := submission("doubtful")
	require.ErrorIs(t, errOf(b.Enqueue(t.Context(), again)), queue.ErrUnavailable, "what the master alone knows is not confirmed by asking again")
	require.NoError(t, b.Started(t.Context(), b.claim(b.get(first.Key), "gpu").Run), "runs go on")

	replica.Resume()
	var accepted queue.Accepted
	require.Eventually(t, func() bool {
		accepted, err = b.Enqueue(t.Context(), again)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.True(t, accepted.Existing)
	require.Equal(t, doubtful.Key, accepted.Job.Key)
	require.Len(t, must(b.Live(t.Context(), first.Tenant)), 2)
}

// In a cluster, the master that has the keys is asked.
func TestReplicasOfACluster(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server on the PATH")
	}
	node := func(name string) (*programs.Program, string, redis.Client) {
		bus := must(freeport.Address())
		_, port, err := net.SplitHostPort(bus)
		require.NoError(t, err)
		p, addr, err := programs.StartRedis(t.TempDir(), name, nil, "save \"\"", "cluster-enabled yes", "cluster-port "+port, "repl-diskless-sync-delay 0")
		require.NoError(t, err)
		t.Cleanup(p.Kill)
		client := redistest.Open(t, "redis://"+addr).Client()
		require.NoError(t, p.Await(t.Context(), "it answers", func(ctx context.Context) error { return client.Ping(ctx).Err() }))
		return p, addr, client
	}
	ctx := t.Context()
	master, addr, of := node("master")
	require.NoError(t, of.Do(ctx, "cluster", "addslotsrange", 0, 16383).Err())
	id := must(of.Do(ctx, "cluster", "myid").Text())
	info := must(of.ClusterNodes(ctx).Result())
	replica, _, to := node("replica")
	host, port, _ := strings.Cut(addr, ":")
	_, bus, _ := strings.Cut(strings.Fields(info)[1], "@")
	require.NoError(t, to.Do(ctx, "cluster", "meet", host, port, strings.Split(bus, ",")[0]).Err())
	require.NoError(t, replica.Await(ctx, "it copies the master", func(ctx context.Context) error {
		return to.Do(ctx, "cluster", "replicate", id).Err()
	}))
	require.NoError(t, master.Await(ctx, "it has a replica", func(ctx context.Context) error {
		info, err := of.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "state=online") {
			err = errors.New(info)
		}
		return err
	}))
	b := on(t, redistest.OpenReplicated(t, "redis+cluster://"+addr, 1), queue.Options{})
	first := submission("first")
	require.Eventually(t, func() bool { // it takes the cluster a moment to get ready
		_, err := b.Enqueue(ctx, first)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	replica.Pause()
	t.Cleanup(replica.Resume)
	require.ErrorContains(t, errOf(b.Enqueue(ctx, submission("second"))), "0 of 1 replicas have confirmed")
}

// A Redis that is full of history still takes prompts: the oldest history goes.
func TestFullOfHistory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := redistest.Open(t, server.URL())
	b := on(t, db, queue.Options{})
	ctx := t.Context()
	const ended = 200
	noise := make([]byte, 16<<10)
	random := rand.NewChaCha8([32]byte{})
	for i := range ended {
		_, _ = random.Read(noise)
		b.endedOf("ann", fmt.Sprintf("old%03d", i), hex.EncodeToString(noise))
	}
	full := func() {
		used := must(db.Client().Info(ctx, "memory").Result())
		_, used, _ = strings.Cut(used, "used_memory:")
		used, _, _ = strings.Cut(used, "\r")
		require.NoError(t, db.Client().ConfigSet(ctx, "maxmemory", used).Err())
	}
	full()
	require.ErrorIs(t, errOf(b.Enqueue(ctx, submission("refused"))), queue.ErrUnavailable, "what has just ended stays")
	require.ErrorContains(t, b.Writable(ctx), "OOM")
	entries := func() int { return b.entriesOf("ann") }
	require.Equal(t, ended, entries())

	require.NoError(t, db.Client().ConfigSet(ctx, "maxmemory", "0").Err())
	b.lua(`for _, k in ipairs(redis.call('ZRANGE', key('q', 'history'), '0', '-1')) do
  write('HSET', key('q', 'job', k), 'finished', '1')
end`, "")
	full()
	for i := range 20 {
		b.enqueue(fmt.Sprintf("new%03d", i))
	}
	require.NoError(t, b.Writable(ctx))
	require.Less(t, entries(), ended)
	require.Greater(t, entries(), ended/2, "no more goes than has to")
	_, err := b.HistoryEntry(ctx, "ann", fmt.Sprintf("old%03d", ended-1))
	require.NoError(t, err, "the newest is there")
	require.ErrorIs(t, errOf(b.HistoryEntry(ctx, "ann", "old000")), queue.ErrNotFound, "the oldest went")
}

// A Redis that was full a moment ago takes the change, with no entry dropped for it.
func TestFullForAMoment(t *testing.T) {
	t.Parallel()
	db := redistest.Open(t, redistest.Start(t).URL())
	require.NoError(t, db.Client().ConfigSet(t.Context(), "maxmemory", "1gb").Err())
	b := on(t, db, queue.Options{})
	b.endedOf("ann", "old", "{}")
	full := errors.New("OOM command not allowed when used memory > 'maxmemory'")
	tries := 0
	reply, err := b.WithRoom(t.Context(), full, func() ([]string, error) {
		if tries++; tries == 1 {
			return nil, full
		}
		return []string{"ok"}, nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"ok"}, reply)
	require.Equal(t, 1, b.entriesOf("ann"))
}

// A Redis that answers but takes nothing is told from one that works.
func TestWritable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		require.NoError(t, on(t, db, queue.Options{}).Writable(t.Context()))
	})
	for _, c := range []struct {
		name, says string
		harm       []any
	}{
		{"a replica", "READONLY", []any{"REPLICAOF", "127.0.0.1", "1"}},
		{"too few replicas", "NOREPLICAS", []any{"CONFIG", "SET", "min-replicas-to-write", "1"}},
		{"no room", "OOM", []any{"CONFIG", "SET", "maxmemory", "1"}},
		{"no scripts", "NOPERM", []any{"ACL", "SETUSER", "default", "-eval", "-evalsha"}},
		{"no channels", "channel", []any{"ACL", "SETUSER", "default", "resetchannels"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := redistest.Open(t, redistest.Start(t).URL())
			b := on(t, db, queue.Options{})
			require.NoError(t, b.Writable(t.Context()))
			require.NoError(t, db.Client().Do(t.Context(), c.harm...).Err())
			err := b.Writable(t.Context())
			require.ErrorIs(t, err, queue.ErrUnavailable)
			require.ErrorContains(t, err, c.says)
			require.NoError(t, db.Ping(t.Context()), "a PING shows nothing of it")
		})
	}
}
