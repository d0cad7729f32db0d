package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// exchange is the state that fake transports share, in place of Redis.
type exchange struct {
	mu      sync.Mutex
	hubs    map[string]*fakeTransport
	owners  map[Key]Ownership
	holders map[Key]string
	opened  map[Key]time.Time // when the owner's socket opened
	blobs   map[string][]byte
	claims  int64
	asked   int // calls of any kind except heartbeats
	mailed  int

	// post returns the copies of a message that arrive, in order. Default: the
	// message arrives once.
	post func(to string, message []byte) [][]byte
}

func newExchange() *exchange {
	return &exchange{
		hubs: map[string]*fakeTransport{}, owners: map[Key]Ownership{}, holders: map[Key]string{}, opened: map[Key]time.Time{}, blobs: map[string][]byte{},
		post: func(_ string, message []byte) [][]byte { return [][]byte{message} },
	}
}

// fakeTransport is one hub's transport.
type fakeTransport struct {
	*exchange
	self   string
	inbox  chan Notice
	closed bool
	alive  bool
	cut    bool // nothing goes in or out
}

var errCut = errors.New("cut off")

func (x *exchange) join(self string) *fakeTransport {
	c := &fakeTransport{exchange: x, self: self, inbox: make(chan Notice, 100_000), alive: true}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hubs[self] = c
	return c
}

// use takes the lock for one call and reports whether the hub is connected.
func (c *fakeTransport) use() error {
	c.mu.Lock()
	c.asked++
	if c.cut {
		return errCut
	}
	return nil
}

// tell is called with the lock held.
func (c *fakeTransport) tell(n Notice) (heard int) {
	for _, other := range c.hubs {
		if other.put(n) && other != c {
			heard++
		}
	}
	return heard
}

func (c *fakeTransport) put(n Notice) bool {
	if c.closed || c.cut {
		return false
	}
	c.inbox <- n
	return true
}

func (c *fakeTransport) Self() string { return c.self }

func (c *fakeTransport) Claim(_ context.Context, wanted Ownership) (claim Claim, err error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return claim, err
	}
	k := wanted.Client
	held := c.owners[k]
	opened := time.Now().Add(-wanted.Age)
	if other := c.hubs[c.holders[k]]; other != nil && other != c && other.alive && c.opened[k].After(opened) {
		claim.Owner = Owner{Hub: other.self, Number: held.Number}
		return claim, nil
	}
	c.opened[k] = opened
	held.Entry, held.Client = wanted.Entry, k
	if claim.Moved = c.holders[k] != c.self; claim.Moved {
		c.claims = max(c.claims, wanted.Number) + 1
		held.Number = c.claims
		c.holders[k] = c.self
		claim.Others = c.tell(Notice{Kind: Claimed, Client: k, Owner: Owner{Hub: c.self, Number: held.Number}})
	}
	c.owners[k] = held
	claim.Owner = Owner{Hub: c.self, Number: held.Number}
	return claim, nil
}

func (c *fakeTransport) Renew(_ context.Context, held []Ownership) (owners []Owner, err error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return nil, err
	}
	for _, h := range held {
		if c.holders[h.Client] == "" {
			c.holders[h.Client], c.owners[h.Client] = c.self, h
		}
		owners = append(owners, Owner{Hub: c.holders[h.Client], Number: c.owners[h.Client].Number})
	}
	return owners, nil
}

func (c *fakeTransport) Release(_ context.Context, held Ownership) error {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return err
	}
	if c.holders[held.Client] == c.self && c.owners[held.Client] == held {
		delete(c.holders, held.Client)
		c.tell(Notice{Kind: Released, Client: held.Client, Owner: Owner{Hub: c.self, Number: held.Number}})
	}
	return nil
}

func (c *fakeTransport) Owners(_ context.Context, clients []Key) (owners []Owner, err error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return nil, err
	}
	for _, k := range clients {
		h := Owner{}
		if hub := c.hubs[c.holders[k]]; hub != nil && hub.alive {
			h = Owner{Hub: hub.self, Number: c.owners[k].Number}
		}
		owners = append(owners, h)
	}
	return owners, nil
}

func (c *fakeTransport) Heartbeat(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return errCut
	}
	c.alive = true
	return nil
}

func (c *fakeTransport) Leave(context.Context) error {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return err
	}
	c.alive = false
	c.tell(Notice{Kind: Left, Hub: c.self})
	return nil
}

func (c *fakeTransport) Alive(_ context.Context, hubs []string) (alive []bool, err error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return nil, err
	}
	for _, hub := range hubs {
		alive = append(alive, c.hubs[hub].alive)
	}
	return alive, nil
}

func (c *fakeTransport) Send(_ context.Context, hub string, text []byte) error {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return err
	}
	c.mailed++
	to := c.hubs[hub]
	for _, copied := range c.post(hub, text) {
		to.put(Notice{Kind: Messaged, Message: copied})
	}
	return nil
}

func (c *fakeTransport) PutBlob(_ context.Context, data []byte) (string, error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return "", err
	}
	ref := fmt.Sprint("blob ", c.asked)
	c.blobs[ref] = data
	return ref, nil
}

func (c *fakeTransport) TakeBlob(_ context.Context, ref string) ([]byte, error) {
	defer c.mu.Unlock()
	if err := c.use(); err != nil {
		return nil, err
	}
	data, ok := c.blobs[ref]
	if !ok {
		return nil, errors.New("no such blob")
	}
	delete(c.blobs, ref)
	return data, nil
}

func (c *fakeTransport) Listen(ctx context.Context) <-chan Notice {
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
func (c *fakeTransport) sever(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	c.alive = !cut
}

// twoHubs runs a test with two hubs under a fake clock.
func twoHubs(t *testing.T, o Options, test func(t *testing.T, x *exchange, a, b *rig)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newExchange()
		a, b := x.rig(t, "a", o), x.rig(t, "b", o)
		synctest.Wait()
		test(t, x, a, b)
	})
}

// rig adds a hub to an exchange.
func (x *exchange) rig(t *testing.T, name string, o Options) *rig {
	pipe := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	o.Transport = x.join(name)
	r := newRig(t, o, pipe)
	r.dialer = pipe.dial
	return r
}

// nothingKept checks that hubs have forgotten all clients.
func nothingKept(t *testing.T, hubs ...*rig) {
	synctest.Wait()
	for _, r := range hubs {
		for k, c := range r.streams.clients.clients {
			require.True(t, c.line.lists.empty(), "%v", k)
			require.Zero(t, c.line.buffer.memory)
		}
	}
}
