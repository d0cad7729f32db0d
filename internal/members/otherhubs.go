package members

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/gossip"
)

const (
	// knockTimeout bounds checking whether a hub's process is still there.
	knockTimeout = time.Second
	// maxOtherHubs bounds the hubs that are remembered.
	maxOtherHubs = 1000
)

// otherHubs are the hubs that this one has met in the gossip.
type otherHubs struct {
	// dial connects to a hub. Nil: over TCP.
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// met are the latest processes, by their names in the gossip.
	met map[string]metHub
}

type metHub struct {
	addr string
	boot int64
	left bool
}

// hubName returns the name in the gossip of the hub with an id.
func hubName(id string) string { return "hub-" + id }

// note notes that a hub has joined, has left or was found dead.
func (o *otherHubs) note(e gossip.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, known := o.met[e.Member.Name]
	switch {
	case e.Left && known && last.boot == e.Member.Boot:
		last.left = true
		o.met[e.Member.Name] = last
	case !e.Left && (!known || last.boot <= e.Member.Boot):
		if o.met == nil || len(o.met) >= maxOtherHubs {
			o.met = map[string]metHub{}
		}
		o.met[e.Member.Name] = metHub{addr: e.Member.Addr, boot: e.Member.Boot}
	}
}

// gone reports whether a hub, given as "id/boot", seems to be gone: it has left the gossip, or
// nothing accepts connections at its address. The gossip itself takes up to ten seconds to find a
// process dead; a closed port shows it at once. A hub that was never met may be alive, so it is not
// gone.
func (o *otherHubs) gone(ctx context.Context, hub string) bool {
	id, _, _ := strings.Cut(hub, "/")
	o.mu.Lock()
	last, known := o.met[hubName(id)]
	o.mu.Unlock()
	switch {
	case !known:
		return false
	case last.left:
		return true
	}
	dial := o.dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	knock, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	conn, err := dial(knock, "tcp", last.addr)
	if err != nil {
		return ctx.Err() == nil
	}
	_ = conn.Close() // nothing was sent
	return false
}
