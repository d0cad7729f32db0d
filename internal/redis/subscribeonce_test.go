package redis_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/engine"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

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
