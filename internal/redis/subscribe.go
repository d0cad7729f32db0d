package redis

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// subscriberQueue is how many notices wait for a slow reader.
	subscriberQueue = 256
	// pingEvery is how often a subscription checks that its connection is alive;
	// two intervals without an answer end it.
	pingEvery = 3 * time.Second
	// resubscribeAfter is the longest pause before the next attempt, to spare a
	// Redis that is unavailable.
	resubscribeAfter = 200 * time.Millisecond
)

// Notice is what a subscriber receives: the payload of a message, or the
// information that messages may have been missed.
type Notice struct {
	Payload string
	// Resync is true on the first notice and whenever some may be missing: after a
	// reconnection, and when the reader was too slow. The reader must then look at
	// the data itself.
	Resync bool
}

// Subscribe listens to channels, named like keys by [DB.Key], until the context
// ends or the DB is closed; then it closes the returned channel. A slow reader
// delays nobody: notices that do not fit are dropped, and a Resync replaces them.
func (db *DB) Subscribe(ctx context.Context, channels ...string) <-chan Notice {
	out := make(chan Notice, subscriberQueue)
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(db.closed, cancel)
	go func() {
		defer close(out)
		defer cancel()
		defer detach()
		for pauses := retry.New(resubscribeAfter, resubscribeAfter); ctx.Err() == nil; pauses.Wait(ctx) {
			// go-redis's own Channel is not used: a full one keeps its goroutine
			// for a minute after the end, and it does not report what it dropped.
			var connected atomic.Bool
			once := context.WithValue(ctx, connectsOnce{}, &connected)
			s := &subscription{sub: db.pubsub.Subscribe(once, channels...), out: out}
			connected.Store(true)
			s.run(once)
		}
	}()
	return out
}

// connectsOnce is the key of a context whose *atomic.Bool says that the subscription has
// had its connection. go-redis would make another one when that breaks, and hold the lock
// meanwhile that a ping needs; here the next subscription does, which tells a Resync.
type connectsOnce struct{}

var errConnectedBefore = errors.New("redis: the subscription has had its connection")

// subscriberHook also refuses second connections.
type subscriberHook struct{ errorHook }

func (subscriberHook) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected, ok := ctx.Value(connectsOnce{}).(*atomic.Bool); ok && connected.Load() {
			return nil, errConnectedBefore
		}
		return next(ctx, network, address)
	}
}

// subscription is one connection of a subscriber.
type subscription struct {
	sub *goredis.PubSub
	out chan<- Notice
	// missed is true while a Resync waits for room.
	missed bool
}

// run passes notices on until the connection fails or the context ends.
func (s *subscription) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	in := make(chan any)
	go func() {
		defer close(in)
		for {
			message, err := s.sub.Receive(ctx)
			if err != nil {
				return
			}
			select {
			case in <- message:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		_ = s.sub.Close()
		for range in { // until the reader has ended
		}
	}()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for silent := 0; ; {
		select {
		case <-ctx.Done():
			return
		case message, ok := <-in:
			if !ok {
				return
			}
			silent = 0
			s.take(message)
		case <-tick.C:
			if silent++; silent > 2 || s.sub.Ping(ctx) != nil {
				return
			}
			s.pass(Notice{})
		}
	}
}

func (s *subscription) take(message any) {
	switch m := message.(type) {
	case *goredis.Message:
		s.pass(Notice{Payload: m.Payload})
	case *goredis.Subscription:
		s.missed = true
		s.pass(Notice{})
	}
}

// pass delivers a notice if there is room; the zero notice only tries to deliver a
// pending Resync.
func (s *subscription) pass(notice Notice) {
	if s.missed {
		// A Resync makes the reader look at everything, including what the notice
		// says.
		notice = Notice{Resync: true}
	} else if notice == (Notice{}) {
		return
	}
	select {
	case s.out <- notice:
		s.missed = false
	default:
		s.missed = true
	}
}
