// Package pins remembers which agent owns which name. An agent is identified by its
// key: the first agent that uses a name keeps it, and the hubs of one Redis agree
// on who that was. Nothing here is secret; the keys are public keys.
//
// Who can write to Redis must not take a name by changing, deleting or restoring what is
// there. So what counts is a record on the [keyring.Shelf], which says whose the name is and
// since when. Redis only decides between two agents who want a free name at one moment, and
// tells hubs of older versions.
//
// Its key:
//
//	g:pins  hash  per name: when its agent was last here, in milliseconds, and its key
package pins

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// Kept is how long a name is reserved for a key that no longer appears.
	Kept = 30 * 24 * time.Hour
	// seenEvery is how often the shelf is told that an agent is still here.
	seenEvery = 24 * time.Hour
	// maxPins bounds the names: anybody who may join can make up any number.
	maxPins = 10_000
)

// ErrFull means that there is no room for another name.
var ErrFull = errors.New("pins: too many names")

//go:embed scripts/claim.lua
var claimLua string

//go:embed scripts/forget.lua
var forgetLua string

//go:embed scripts/read.lua
var readLua string

// Durable, because a thief must not be able to take a name after a crash.
var (
	claimScript  = redis.NewScript("pins/claim", redis.Durable, claimLua)
	forgetScript = redis.NewScript("pins/forget", redis.Durable, forgetLua)
	readScript   = redis.NewScript("pins/read", redis.ReadOnly, readLua)
)

// Pins are the names of the fleet. They are safe for concurrent use.
type Pins struct {
	db      *redis.DB
	records *keyring.Records
	shelf   keyring.Typed[record]
	kept    time.Duration
	most    int

	// seen has what was read of the shelf, by the record's id.
	mu   sync.Mutex
	seen map[string]reading
}

// New returns the pins of a fleet, signed with the keys of a ring.
func New(db *redis.DB, ring *keyring.Ring) *Pins {
	return &Pins{db: db, records: ring.Records(kind), shelf: keyring.ShelfOf[record](ring, kind), kept: Kept, most: maxPins, seen: map[string]reading{}}
}

// Claim assigns a name to a key unless it has another one, and records that its
// agent is here. It returns the key that now owns the name. The error is [ErrFull],
// one of Redis, or one of [keyring.Shelf].
func (p *Pins) Claim(ctx context.Context, name, key string) (owner string, err error) {
	now, err := p.db.Now(ctx)
	if err != nil {
		return "", fmt.Errorf("pins: %w", err)
	}
	r, found, err := p.get(ctx, name)
	if err != nil {
		return "", err
	}
	certain := ""
	if found && now.Sub(time.UnixMilli(r.Seen)) <= p.kept {
		certain = r.Key
	}
	reply, err := p.db.Run(ctx, claimScript, name, key, p.kept.Milliseconds(), p.most, certain)
	switch {
	case err != nil:
		return "", fmt.Errorf("pins: %w", err)
	case len(reply) == 2 && reply[0] == "taken":
		return reply[1], nil
	case len(reply) == 1 && reply[0] == "full":
		return "", ErrFull
	case len(reply) == 0 || reply[0] != "yours":
		return "", fmt.Errorf("pins: %d values of a claim", len(reply))
	}
	for _, dropped := range reply[1:] {
		if err := p.drop(ctx, dropped, now); err != nil {
			return "", err
		}
	}
	switch {
	case certain == "":
		r = record{Name: name, Key: key, Since: now.UnixMilli()}
	case now.Sub(time.UnixMilli(r.Seen)) < seenEvery:
		return key, nil
	}
	r.Seen = now.UnixMilli()
	if err := p.shelf.Put(ctx, name, r); err != nil {
		return "", err
	}
	// Of two that Redis was made to say yes to, one stays.
	if r, found, err = p.get(ctx, name); err != nil {
		return "", err
	}
	if !found {
		return "", errors.New("pins: the name was forgotten meanwhile")
	}
	return r.Key, nil
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
	now, err := p.db.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	records, err := p.all(ctx)
	if err != nil {
		return nil, err
	}
	var known []Pin
	for _, r := range records {
		if now.Sub(time.UnixMilli(r.Seen)) > p.kept {
			continue
		}
		pin := Pin{Name: r.Name, Key: r.Key}
		if r.Since > 0 {
			pin.Since = time.UnixMilli(r.Since)
		}
		known = append(known, pin)
	}
	slices.SortFunc(known, func(a, b Pin) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) })
	return known, nil
}

// Forget releases a name, and reports whether it had an owner.
func (p *Pins) Forget(ctx context.Context, name string) (bool, error) {
	_, found, err := p.get(ctx, name)
	if err != nil && !errors.Is(err, keyring.ErrForged) {
		return false, err
	}
	if err := p.remove(ctx, name); err != nil {
		return false, err
	}
	reply, err := p.db.Run(ctx, forgetScript, name)
	if err != nil {
		return false, fmt.Errorf("pins: %w", err)
	}
	return found || len(reply) == 1 && reply[0] == "1", nil
}
