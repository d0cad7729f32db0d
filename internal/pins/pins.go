// Package pins remembers which agent owns which name. An agent is identified by its
// key: the first agent that uses a name keeps it, and the hubs of one Redis agree
// on who that was. Nothing here is secret; the keys are public keys.
//
// Its keys:
//
//	g:pins      hash  per name: when its agent was last here, in milliseconds, and its key
//	g:pinsince  hash  per name: since when it has been its key's, in milliseconds, and the key
//
// The second is apart from the first because hubs of older versions read the first to its
// end as a key.
package pins

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// Kept is how long a name is reserved for a key that no longer appears.
	Kept = 30 * 24 * time.Hour
	// maxPins bounds the names: anybody who may join can make up any number.
	maxPins = 10_000
)

// ErrFull means that there is no room for another name.
var ErrFull = errors.New("pins: too many names")

//go:embed scripts/claim.lua
var claimLua string

//go:embed scripts/forget.lua
var forgetLua string

//go:embed scripts/known.lua
var knownLua string

// Durable, because a thief must not be able to take a name after a crash.
var (
	claimScript  = redis.NewScript("pins/claim", redis.Durable, claimLua)
	forgetScript = redis.NewScript("pins/forget", redis.Durable, forgetLua)
	knownScript  = redis.NewScript("pins/known", redis.ReadOnly, knownLua)
)

// Pins are the names in a Redis. They are safe for concurrent use.
type Pins struct {
	db   *redis.DB
	kept time.Duration
	most int
}

// New returns the pins in a Redis.
func New(db *redis.DB) *Pins { return &Pins{db: db, kept: Kept, most: maxPins} }

// Claim assigns a name to a key unless it has another one, and records that its
// agent is here. It returns the key that now owns the name. The error is [ErrFull]
// or one of Redis.
func (p *Pins) Claim(ctx context.Context, name, key string) (owner string, err error) {
	reply, err := p.db.Run(ctx, claimScript, name, key, p.kept.Milliseconds(), p.most)
	if err != nil {
		return "", fmt.Errorf("pins: %w", err)
	}
	switch {
	case len(reply) == 1 && reply[0] == "yours":
		return key, nil
	case len(reply) == 2 && reply[0] == "taken":
		return reply[1], nil
	case len(reply) == 1 && reply[0] == "full":
		return "", ErrFull
	}
	return "", fmt.Errorf("pins: %d values of a claim", len(reply))
}

// Pin is a name that belongs to a key.
type Pin struct {
	Name, Key string
	// Since is when the key got the name; zero if that was before this was written down.
	Since time.Time
}

// Known are the names that belong to somebody, those that have done so for longest first,
// and of equals the first by name.
func (p *Pins) Known(ctx context.Context) ([]Pin, error) {
	reply, err := p.db.Run(ctx, knownScript, p.kept.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	var known []Pin
	for three := range slices.Chunk(reply, 3) {
		if len(three) < 3 {
			return nil, fmt.Errorf("pins: %d values of a list", len(reply))
		}
		pin := Pin{Name: three[0], Key: three[1]}
		if since, err := strconv.ParseInt(three[2], 10, 64); err == nil && since > 0 {
			pin.Since = time.UnixMilli(since)
		}
		known = append(known, pin)
	}
	slices.SortFunc(known, func(a, b Pin) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) })
	return known, nil
}

// Forget releases a name, and reports whether it had an owner.
func (p *Pins) Forget(ctx context.Context, name string) (bool, error) {
	reply, err := p.db.Run(ctx, forgetScript, name)
	if err != nil {
		return false, fmt.Errorf("pins: %w", err)
	}
	return len(reply) == 1 && reply[0] == "1", nil
}
