package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// exchange is what fake carriers share: all that Redis does for real ones.
type exchange struct {
	mu      sync.Mutex
	hubs    map[string]*fakeCarrier
	homes   map[Key]Held
	holders map[Key]string
	parcels map[string][]byte
	claims  int64
	asked   int // calls of any kind but beats
	mailed  int

	// post decides what becomes of a letter: the copies that arrive, at once
	// and in that order. Default: it arrives.
	post func(to string, letter []byte) [][]byte
}

func newExchange() *exchange {
	return &exchange{
		hubs: map[string]*fakeCarrier{}, homes: map[Key]Held{}, holders: map[Key]string{}, parcels: map[string][]byte{},
		post: func(_ string, letter []byte) [][]byte { return [][]byte{letter} },
	}
}

// fakeCarrier is one hub's carrier.
type fakeCarrier struct {
	*exchange
	self   string
	inbox  chan Notice
	closed bool
	alive  bool
	cut    bool // nothing goes in or out
}

var errCut = errors.New("cut off")

func (x *exchange) join(self string) *fakeCarrier {
	c := &fakeCarrier{exchange: x, self: self, inbox: make(chan Notice, 100_000), alive: true}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hubs[self] = c
	return c
}

// use locks for one call and reports whether there is a connection.
func (c *fakeCarrier) use() error {
	c.mu.Lock()
	c.asked++
	if c.cut {
		return errCut
	}
	return nil
}

// tell is called with the lock held.
func (c *fakeCarrier) tell(n Notice) (heard int) {
	for _, other := range c.hubs {
		if other.put(n) && other != c {
			heard++
		}
	}
	return heard
}

func (c *fakeCarrier) put(n Notice) bool {
	if c.closed || c.cut {
		return false
	}
	c.inbox <- n
	return true
}

func (c *fakeCarrier) Self() string { return c.self }

func (c *fakeCarrier) Claim(_ context.Context, wanted Held) (claim Claim, err error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return claim, err
	}
	k := wanted.Client
	held := c.homes[k]
	held.Entry, held.Client = wanted.Entry, k
	if claim.Moved = c.holders[k] != c.self; claim.Moved {
		c.claims = max(c.claims, wanted.Number) + 1
		held.Number = c.claims
		c.holders[k] = c.self
		claim.Others = c.tell(Notice{Kind: Claimed, Client: k, Home: Home{Hub: c.self, Number: held.Number}})
	}
	c.homes[k] = held
	claim.Home = Home{Hub: c.self, Number: held.Number}
	return claim, nil
}

func (c *fakeCarrier) Renew(_ context.Context, held []Held) (homes []Home, err error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return nil, err
	}
	for _, h := range held {
		if c.holders[h.Client] == "" {
			c.holders[h.Client], c.homes[h.Client] = c.self, h
		}
		homes = append(homes, Home{Hub: c.holders[h.Client], Number: c.homes[h.Client].Number})
	}
	return homes, nil
}

func (c *fakeCarrier) Release(_ context.Context, held Held) error {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return err
	}
	if c.holders[held.Client] == c.self && c.homes[held.Client] == held {
		delete(c.holders, held.Client)
		c.tell(Notice{Kind: Released, Client: held.Client, Home: Home{Hub: c.self, Number: held.Number}})
	}
	return nil
}

func (c *fakeCarrier) Homes(_ context.Context, clients []Key) (homes []Home, err error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return nil, err
	}
	for _, k := range clients {
		h := Home{}
		if hub := c.hubs[c.holders[k]]; hub != nil && hub.alive {
			h = Home{Hub: hub.self, Number: c.homes[k].Number}
		}
		homes = append(homes, h)
	}
	return homes, nil
}

func (c *fakeCarrier) Beat(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return errCut
	}
	c.alive = true
	return nil
}

func (c *fakeCarrier) Leave(context.Context) error {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return err
	}
	c.alive = false
	c.tell(Notice{Kind: Left, Hub: c.self})
	return nil
}

func (c *fakeCarrier) Alive(_ context.Context, hubs []string) (alive []bool, err error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return nil, err
	}
	for _, hub := range hubs {
		alive = append(alive, c.hubs[hub].alive)
	}
	return alive, nil
}

func (c *fakeCarrier) Mail(_ context.Context, hub string, text []byte) error {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return err
	}
	c.mailed++
	to := c.hubs[hub]
	for _, copied := range c.post(hub, text) {
		to.put(Notice{Kind: Mailed, Letter: copied})
	}
	return nil
}

func (c *fakeCarrier) Deposit(_ context.Context, data []byte) (string, error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return "", err
	}
	ref := fmt.Sprint("parcel ", c.asked)
	c.parcels[ref] = data
	return ref, nil
}

func (c *fakeCarrier) Collect(_ context.Context, ref string) ([]byte, error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return nil, err
	}
	data, ok := c.parcels[ref]
	if !ok {
		return nil, errors.New("no such parcel")
	}
	delete(c.parcels, ref)
	return data, nil
}

func (c *fakeCarrier) Listen(ctx context.Context) <-chan Notice {
	out := make(chan Notice)
	c.mu.Lock()
	c.put(Notice{Kind: Resync})
	c.mu.Unlock()
	go func() {
		defer close(out)
		for {
			select {
			case n := <-c.inbox:
				select {
				case out <- n:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closed = true
	})
	return out
}

// sever cuts a hub off from the others, as a kill does.
func (c *fakeCarrier) sever(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	c.alive = !cut
}

// twoHubs runs a test under a fake clock with two hubs.
func twoHubs(t *testing.T, o Options, test func(t *testing.T, x *exchange, a, b *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newExchange()
		a, b := x.rig(t, "a", o), x.rig(t, "b", o)
		synctest.Wait()
		test(t, x, a, b)
	})
}

// rig is one more hub of an exchange.
func (x *exchange) rig(t *testing.T, name string, o Options) *rig {
	t.Helper()
	pipe := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	o.Carrier = x.join(name)
	r := newRig(t, o, pipe)
	r.dialer = pipe.dial
	return r
}

// nothingKept checks that hubs have forgotten all clients.
func nothingKept(t *testing.T, hubs ...*rig) {
	t.Helper()
	synctest.Wait()
	for _, r := range hubs {
		for k, c := range r.streams.clients {
			require.True(t, c.line.empty(), "%v", k)
			require.Zero(t, c.line.memory)
		}
	}
}
