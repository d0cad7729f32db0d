package redis_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/engine"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

var (
	tickScript = redis.NewScript("tick", redis.Write, "return {int(now())}")
	lookScript = redis.NewScript("look", redis.ReadOnly, "return {int(now())}")
	lendScript = redis.NewScript("lend", redis.Write, `
local lent = key('lent')
write('SET', lent, '1')
expire(lent, now() + 5000)
return {int(redis.call('PTTL', lent))}`)
)

// Where Redis's clock is set back, time stands still for scripts, and then goes more slowly
// until the clock has caught up.
func TestTimeDoesNotGoBack(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	db := redistest.Open(t, "redis://"+server.Addr())
	run := func(s *redis.Script) time.Duration {
		reply := must(db.Run(t.Context(), s))
		ms := must(strconv.ParseInt(reply[0], 10, 64))
		return time.Duration(ms) * time.Millisecond
	}
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	since := func(s *redis.Script, clock time.Duration) time.Duration {
		server.SetTime(begin.Add(clock))
		read, wrote := run(lookScript), run(s)
		require.Equal(t, wrote, read)
		return wrote - time.Duration(begin.UnixMilli())*time.Millisecond
	}
	require.Equal(t, 0*time.Second, since(tickScript, 0))
	require.Equal(t, 10*time.Second, since(tickScript, 10*time.Second))
	require.Equal(t, 9500*time.Millisecond, since(tickScript, 9500*time.Millisecond), "a small step is one of this clock, too")
	const back = -time.Hour
	require.Equal(t, 10*time.Second, since(tickScript, back+10*time.Second))
	require.Equal(t, 5*time.Second, run(lendScript), "so long by Redis's own clock")
	require.Equal(t, 19*time.Second, since(tickScript, back+20*time.Second))
	last := 19 * time.Second
	for clock := back + 21*time.Second; clock < 12*time.Hour; clock += 73 * time.Second {
		now := since(tickScript, clock)
		require.Greater(t, now, last)
		require.GreaterOrEqual(t, now, clock)
		last = now
	}
	require.Equal(t, 13*time.Hour, since(tickScript, 13*time.Hour), "it has caught up")
	require.Equal(t, 20*time.Hour, since(tickScript, 20*time.Hour), "a clock that is set forward is believed")
}

// Redis's time is told without asking, and what has happened is as old as it is: whatever its
// clock shows, and whether that has jumped since.
func TestClock(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, 2 * time.Minute, -2 * time.Minute} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			server := miniredis.RunT(t)
			db := redistest.Open(t, "redis://"+server.Addr())
			clock := db.Clock()
			const most = 5 * time.Second // of a busy machine
			look := func(ahead time.Duration) time.Time {
				server.SetTime(time.Now().Add(ahead))
				must(db.Run(t.Context(), tickScript)) // which notes it, as hubs do all the time
				now := must(db.Now(t.Context()))
				require.WithinDuration(t, now, clock.Now(), most)
				return now
			}
			before := time.Now()
			require.WithinDuration(t, before, clock.Now(), most, "nobody has looked")
			early := look(skew)
			require.InDelta(t, skew.Seconds(), clock.Skew().Seconds(), most.Seconds())
			require.WithinDuration(t, before.Add(-time.Minute), clock.When(early.Add(-time.Minute).UnixMilli()), most)
			require.False(t, clock.When(early.Add(time.Hour).UnixMilli()).After(time.Now()), "it has not passed")

			const jump = time.Hour
			late := look(skew + jump)
			require.WithinDuration(t, before, clock.When(early.UnixMilli()), most, "it is no older for the jump")
			require.WithinDuration(t, before, clock.When(late.UnixMilli()), most)
			require.InDelta(t, (skew + jump).Seconds(), clock.Skew().Seconds(), most.Seconds())

			back := look(skew)
			require.WithinDuration(t, late, back, most, "time does not go back")
			require.InDelta(t, skew.Seconds(), clock.Skew().Seconds(), most.Seconds(), "but the clock has")
			for _, at := range []time.Time{early, late, back} {
				require.WithinDuration(t, before, clock.When(at.UnixMilli()), most)
			}
		})
	}
}

// What is deleted for its age is as old by Redis's clock, by what was measured, and by the
// hub's own clock.
func TestAgo(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	db := redistest.Open(t, "redis://"+server.Addr())
	look := func(ahead time.Duration) {
		server.SetTime(time.Now().Add(ahead))
		must(db.Run(t.Context(), tickScript))
		must(db.Now(t.Context()))
	}
	ago := func(age, want time.Duration) {
		require.WithinDuration(t, time.Now().Add(-want), db.Clock().Ago(age), 5*time.Second)
	}
	ago(time.Hour, time.Hour)
	look(-2 * time.Minute)
	ago(time.Hour, time.Hour+2*time.Minute)
	look(24 * time.Hour)
	ago(time.Hour, time.Hour+2*time.Minute) // the clock was not yet set then
	ago(0, 0)                               // so Redis says, not the hub
	other := redistest.Open(t, "redis://"+server.Addr())
	must(other.Now(t.Context()))
	require.WithinDuration(t, time.Now().Add(-time.Hour), other.Clock().Ago(time.Hour), 5*time.Second, "a hub that has just started")
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := redistest.OpenDir(t, dir)
	require.ErrorIs(t, errOf(redis.Open(t.Context(), redis.Options{Dir: dir})), redis.ErrLocked)
	require.NoError(t, db.Close())
	require.NoError(t, must(redis.Open(t.Context(), redis.Options{Dir: dir})).Close())
}

func TestEmbeddedRefusesWhatItCannotRepeat(t *testing.T) {
	t.Parallel()
	db := redistest.Embedded(t)
	for _, body := range []string{
		`write('EXPIRE', key('x'), 10)`, `write('SET', key('x'), 'y', 'EX', '10')`, `write('SETEX', key('x'), 10, 'y')`,
		`write('SPOP', key('s'))`, `write('XADD', key('stream'), '*', 'a', 'b')`, `write('PFADD', key('hll'), 'a')`,
	} {
		script := redis.NewScript("odd", redis.Write, `write('SET', key('x'), '1') write('SADD', key('s'), '1') `+body)
		require.ErrorContains(t, errOf(db.Run(t.Context(), script)), "ERR ", body)
	}
}

// port is an address in memory behind which somebody may answer.
type port struct {
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
	work     sync.WaitGroup
}

func open(listener net.Listener, serve func(net.Conn)) *port {
	p := &port{listener: listener}
	p.work.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, c)
			p.mu.Unlock()
			p.work.Go(func() { serve(c) })
		}
	})
	return p
}

func (p *port) kill() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// While a Redis cannot even be dialled, no ping waits for the lock that go-redis holds
// meanwhile: the clock of a bubble would stand still.
func TestSubscriptionOfAnUnreachableRedis(t *testing.T) {
	t.Parallel()
	loopback.Test(t, func(t *testing.T) {
		e := must(engine.Open(engine.Options{Server: true, RunID: strings.Repeat("1", 40)}))
		defer func() { require.NoError(t, e.Close()) }()
		server := open(loopback.Listen(), e.Serve)
		var silent atomic.Bool
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			if silent.Load() {
				<-time.After(20 * time.Second)
				return nil, syscall.ETIMEDOUT
			}
			return loopback.Dial(ctx, network, address)
		}
		address := server.listener.Addr().String()
		db := must(redis.Open(t.Context(), redis.Options{URL: "redis://" + address, Dial: dial}))
		notices := db.Subscribe(t.Context(), db.Key("news"))
		require.True(t, (<-notices).Resync)

		silent.Store(true)
		server.kill()
		<-time.After(time.Minute)
		silent.Store(false)
		server = open(loopback.ListenAt(address), e.Serve)
		require.True(t, (<-notices).Resync)
		require.NoError(t, db.Close())
		for range notices { // ends
		}
		server.kill()
	})
}
