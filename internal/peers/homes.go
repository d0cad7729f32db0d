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
	// homeFor is how long a home lasts that is not renewed. It only matters
	// when a hub dies; its beats tell of that much sooner.
	homeFor = 2 * time.Minute
	// aliveFor is how long a hub counts as alive after a beat.
	aliveFor = 15 * time.Second
)

//go:embed scripts/claim.lua
var claimLua string

//go:embed scripts/renew.lua
var renewLua string

//go:embed scripts/release.lua
var releaseLua string

//go:embed scripts/homes.lua
var homesLua string

//go:embed scripts/beat.lua
var beatLua string

//go:embed scripts/leave.lua
var leaveLua string

// Nothing here is durable: what a Redis forgets is claimed again.
var (
	claimScript   = redis.NewScript("peers/claim", redis.Write, claimLua)
	renewScript   = redis.NewScript("peers/renew", redis.Write, renewLua)
	releaseScript = redis.NewScript("peers/release", redis.Write, releaseLua)
	homesScript   = redis.NewScript("peers/homes", redis.ReadOnly, homesLua)
	beatScript    = redis.NewScript("peers/beat", redis.Write, beatLua)
	leaveScript   = redis.NewScript("peers/leave", redis.Write, leaveLua)
)

// Peers are the other hubs of a Redis, as one hub sees them. They are a
// [stream.Carrier], safe for concurrent use.
type Peers struct {
	db   *redis.DB
	self string
}

var _ stream.Carrier = (*Peers)(nil)

// New gives the peers in a Redis of the hub named self. The name must not
// have been used by an earlier process.
func New(db *redis.DB, self string) *Peers { return &Peers{db: db, self: self} }

// Self is the name of this hub.
func (p *Peers) Self() string { return p.self }

// packed is a client in the name of a key.
func packed(k stream.Key) string { return redis.Pack(k.Tenant, k.Client) }

// Claim makes this hub the home of a client; see [stream.Carrier].
func (p *Peers) Claim(ctx context.Context, wanted stream.Held) (stream.Claim, error) {
	reply, err := p.db.Run(ctx, claimScript, packed(wanted.Client), p.self, wanted.Number, wanted.Entry,
		homeFor.Milliseconds(), aliveFor.Milliseconds())
	if err != nil {
		return stream.Claim{}, fmt.Errorf("peers: %w", err)
	}
	if len(reply) != 3 {
		return stream.Claim{}, fmt.Errorf("peers: %d values of a claim", len(reply))
	}
	number, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil {
		return stream.Claim{}, fmt.Errorf("peers: number of a home: %w", err)
	}
	// In a cluster this counts one server's subscribers: the hub then waits
	// for fewer than there are, and what they have comes a moment later.
	told, err := strconv.Atoi(reply[2])
	if err != nil {
		return stream.Claim{}, fmt.Errorf("peers: number of hubs: %w", err)
	}
	return stream.Claim{
		Home:  stream.Home{Hub: p.self, Number: number},
		Moved: reply[1] == "moved", Others: max(told-1, 0),
	}, nil
}

// Renew keeps this hub the home of clients; see [stream.Carrier].
func (p *Peers) Renew(ctx context.Context, held []stream.Held) ([]stream.Home, error) {
	args := make([]any, 0, 2+3*len(held))
	args = append(args, p.self, homeFor.Milliseconds())
	for _, h := range held {
		args = append(args, packed(h.Client), h.Number, h.Entry)
	}
	reply, err := p.db.Run(ctx, renewScript, args...)
	if err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	return readHomes(reply, len(held))
}

// Release gives a home up; see [stream.Carrier].
func (p *Peers) Release(ctx context.Context, h stream.Held) error {
	return p.do(ctx, releaseScript, packed(h.Client), p.self, h.Number, h.Entry)
}

// Homes finds the homes of clients; see [stream.Carrier].
func (p *Peers) Homes(ctx context.Context, clients []stream.Key) ([]stream.Home, error) {
	args := make([]any, len(clients))
	for i, k := range clients {
		args[i] = packed(k)
	}
	reply, err := p.db.Run(ctx, homesScript, args...)
	if err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	return readHomes(reply, len(clients))
}

// Beat says that this hub lives.
func (p *Peers) Beat(ctx context.Context) error {
	return p.do(ctx, beatScript, p.self, aliveFor.Milliseconds())
}

// Leave says that this hub does not live any more.
func (p *Peers) Leave(ctx context.Context) error { return p.do(ctx, leaveScript, p.self) }

// Alive tells which of the hubs have said of late that they live.
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

// do runs a script of which only success counts.
func (p *Peers) do(ctx context.Context, s *redis.Script, args ...any) error {
	if _, err := p.db.Run(ctx, s, args...); err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	return nil
}

func readHomes(reply []string, count int) ([]stream.Home, error) {
	if len(reply) != 2*count {
		return nil, fmt.Errorf("peers: %d values of %d homes", len(reply), count)
	}
	homes := make([]stream.Home, count)
	for i := range homes {
		n, err := strconv.ParseInt(reply[2*i+1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("peers: number of a home: %w", err)
		}
		homes[i] = stream.Home{Hub: reply[2*i], Number: n}
	}
	return homes, nil
}
