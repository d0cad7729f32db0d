package peers

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/stream"
)

const (
	// ownerTTL is how long an ownership lasts without renewal. It matters only when
	// a hub dies, and missing heartbeats reveal that much sooner.
	ownerTTL = 2 * time.Minute
	// aliveTTL is how long a hub counts as alive after a heartbeat.
	aliveTTL = 15 * time.Second
)

//go:embed scripts/claim.lua
var claimLua string

//go:embed scripts/renew.lua
var renewLua string

//go:embed scripts/release.lua
var releaseLua string

//go:embed scripts/owners.lua
var ownersLua string

//go:embed scripts/heartbeat.lua
var heartbeatLua string

//go:embed scripts/leave.lua
var leaveLua string

// None of this needs to be durable: what Redis loses is claimed again.
var (
	claimScript     = redis.NewScript("peers/claim", redis.Write, claimLua)
	renewScript     = redis.NewScript("peers/renew", redis.Write, renewLua)
	releaseScript   = redis.NewScript("peers/release", redis.Write, releaseLua)
	ownersScript    = redis.NewScript("peers/owners", redis.ReadOnly, ownersLua)
	heartbeatScript = redis.NewScript("peers/heartbeat", redis.Write, heartbeatLua)
	leaveScript     = redis.NewScript("peers/leave", redis.Write, leaveLua)
)

// Peers is one hub's view of the other hubs that share its Redis. It implements
// [stream.Transport] and is safe for concurrent use.
type Peers struct {
	db   *redis.DB
	self string
}

var _ stream.Transport = (*Peers)(nil)

// New returns the Peers of the hub named self. No earlier process may have used the
// name.
func New(db *redis.DB, self string) *Peers { return &Peers{db: db, self: self} }

// Self returns the name of this hub.
func (p *Peers) Self() string { return p.self }

// packed encodes a client for use in a key name.
func packed(k stream.Key) string { return redis.Pack(k.Tenant, k.Client) }

// Claim makes this hub the owner of a client; see [stream.Transport].
func (p *Peers) Claim(ctx context.Context, wanted stream.Ownership) (stream.Claim, error) {
	return p.claim(ctx, wanted, p.db.Clock().Now())
}

// claim claims a client in a call that was sent at a time of Redis's clock.
func (p *Peers) claim(ctx context.Context, wanted stream.Ownership, sent time.Time) (stream.Claim, error) {
	reply, err := p.db.Run(ctx, claimScript, packed(wanted.Client), p.self, wanted.Number, wanted.Entry,
		ownerTTL.Milliseconds(), aliveTTL.Milliseconds(), wanted.Age.Milliseconds(), sent.UnixMilli())
	if err != nil {
		return stream.Claim{}, fmt.Errorf("peers: %w", err)
	}
	if len(reply) != 4 {
		return stream.Claim{}, fmt.Errorf("peers: %d values of a claim", len(reply))
	}
	number, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil {
		return stream.Claim{}, fmt.Errorf("peers: owner number: %w", err)
	}
	// In a cluster this counts the subscribers of one server only. The hub then
	// waits for fewer hubs than there are, and their events arrive a moment later.
	told, err := strconv.Atoi(reply[2])
	if err != nil {
		return stream.Claim{}, fmt.Errorf("peers: hub count: %w", err)
	}
	return stream.Claim{
		Owner: stream.Owner{Hub: reply[3], Number: number},
		Moved: reply[1] == "moved", Others: max(told-1, 0),
	}, nil
}

// Renew extends the ownership of clients; see [stream.Transport].
func (p *Peers) Renew(ctx context.Context, held []stream.Ownership) ([]stream.Owner, error) {
	args := make([]any, 0, 2+3*len(held))
	args = append(args, p.self, ownerTTL.Milliseconds())
	for _, h := range held {
		args = append(args, packed(h.Client), h.Number, h.Entry)
	}
	reply, err := p.db.Run(ctx, renewScript, args...)
	if err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	return readOwners(reply, len(held))
}

// Release gives up an ownership; see [stream.Transport].
func (p *Peers) Release(ctx context.Context, h stream.Ownership) error {
	return p.do(ctx, releaseScript, packed(h.Client), p.self, h.Number, h.Entry)
}

// Owners looks up the owners of clients; see [stream.Transport].
func (p *Peers) Owners(ctx context.Context, clients []stream.Key) ([]stream.Owner, error) {
	args := make([]any, len(clients))
	for i, k := range clients {
		args[i] = packed(k)
	}
	reply, err := p.db.Run(ctx, ownersScript, args...)
	if err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	return readOwners(reply, len(clients))
}

// Heartbeat reports that this hub is alive.
func (p *Peers) Heartbeat(ctx context.Context) error {
	return p.do(ctx, heartbeatScript, p.self, aliveTTL.Milliseconds())
}

// Leave reports that this hub has stopped.
func (p *Peers) Leave(ctx context.Context) error { return p.do(ctx, leaveScript, p.self) }

// Alive reports which of the hubs have sent a heartbeat recently.
func (p *Peers) Alive(ctx context.Context, hubs []string) ([]bool, error) {
	names := make([]string, len(hubs))
	for i, hub := range hubs {
		names[i] = p.db.Key("s", "hub", hub)
	}
	values, err := p.db.Client().MGet(ctx, names...).Result()
	if err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	alive := make([]bool, len(hubs))
	for i, v := range values {
		alive[i] = v != nil
	}
	return alive, nil
}

// do runs a script and discards its reply.
func (p *Peers) do(ctx context.Context, s *redis.Script, args ...any) error {
	if _, err := p.db.Run(ctx, s, args...); err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	return nil
}

func readOwners(reply []string, count int) ([]stream.Owner, error) {
	if len(reply) != 2*count {
		return nil, fmt.Errorf("peers: %d values of %d owners", len(reply), count)
	}
	owners := make([]stream.Owner, count)
	for i := range owners {
		n, err := strconv.ParseInt(reply[2*i+1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("peers: owner number: %w", err)
		}
		owners[i] = stream.Owner{Hub: reply[2*i], Number: n}
	}
	return owners, nil
}
