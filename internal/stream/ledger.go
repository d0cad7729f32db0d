package stream

import "sync/atomic"

// Bounds on what the hub keeps for all clients together. Each client also has its
// own, see [Options]; these prevent many client ids from multiplying it.
const (
	// maxKept bounds the memory of logs and socket queues, in bytes.
	maxKept = 1 << 30
	// maxSpilled bounds what is on disk, in bytes.
	maxSpilled = 16 << 30
	// maxClients bounds the clients that are known only because a prompt named
	// them, without a socket.
	maxClients = 50_000
	// Under pressure, each client may still keep smallLine bytes, and each socket
	// may have smallQueue bytes queued.
	smallLine  = 64 << 10
	smallQueue = 1 << 20
)

// ledger counts what is kept for the clients of one tenant; above is the ledger of
// all tenants. A nil ledger counts nothing.
type ledger struct {
	above *ledger
	// part reports that the tenant has to leave room for others.
	part func() bool
	// tenants counts the tenants' ledgers; it is set in the ledger of all tenants.
	tenants atomic.Int64

	memory, disk atomic.Int64
	clients      int // guarded by the owner's lock
}

func (g *ledger) keep(bytes int64) {
	for ; g != nil; g = g.above {
		g.memory.Add(bytes)
	}
}

func (g *ledger) spill(bytes int64) {
	for ; g != nil; g = g.above {
		g.disk.Add(bytes)
	}
}

// beyond reports whether a tenant has used up its part of whole. That is a quarter
// if the tenant has to leave room for others, and no more than a fair share once
// all of it is in use.
func (g *ledger) beyond(whole, own, all int64) bool {
	if g.part != nil && g.part() && own > whole/4 {
		return true
	}
	return all > whole && own > whole/max(g.above.tenants.Load(), 1)
}

// pressed reports whether the tenant's clients must keep less in memory.
func (g *ledger) pressed() bool {
	return g != nil && g.beyond(maxKept, g.memory.Load(), g.above.memory.Load())
}

// full reports whether that many more bytes would be too much for the disk.
func (g *ledger) full(bytes int64) bool {
	return g != nil && g.beyond(maxSpilled, g.disk.Load()+bytes, g.above.disk.Load()+bytes)
}

// crowded reports whether the tenant has too many clients. all is the number of
// clients of all tenants.
func (g *ledger) crowded(all int) bool {
	return g != nil && g.beyond(maxClients, int64(g.clients+1), int64(all+1))
}
