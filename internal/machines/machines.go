// Package machines keeps which GPU machines may join through a tunnel, and by which
// token. Only hashes are kept: whoever reads them can join as nobody.
//
// Who can write to Redis must not let machines in, or bring back a token that was revoked. So
// a token counts only if a record on the [keyring.Shelf] says the same. Redis tells all hubs
// at once that one was revoked, and hubs of older versions what they need.
//
// Its key:
//
//	g:machines  hash  per machine: when its token was issued, in milliseconds, and the
//	                  SHA-256 of the token
//	g:join:<machine>  string  the hash that used its token for joining, while that would be valid
package machines

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/tunnel"
)

// most bounds the machines.
const most = 10_000

// ErrFull means that there is no room for another machine.
var ErrFull = errors.New("machines: too many tokens")

//go:embed scripts/issue.lua
var issueLua string

//go:embed scripts/revoke.lua
var revokeLua string

//go:embed scripts/read.lua
var readLua string

// Durable, because a token that was revoked must not come back after a crash.
var (
	issueScript  = redis.NewScript("machines/issue", redis.Durable, issueLua)
	revokeScript = redis.NewScript("machines/revoke", redis.Durable, revokeLua)
	readScript   = redis.NewScript("machines/read", redis.ReadOnly, readLua)
)

// Machines are those of a fleet. They are safe for concurrent use.
type Machines struct {
	db      *redis.DB
	records *keyring.Records
	shelf   keyring.Typed[record]
	invited keyring.Typed[invitation]
	most    int

	// sure has by machine what the shelf said of its token, and when.
	mu   sync.Mutex
	sure map[string]sure
}

// New returns the machines of a fleet, signed with the keys of a ring.
func New(db *redis.DB, ring *keyring.Ring) *Machines {
	return &Machines{db: db, records: ring.Records(kind), shelf: keyring.ShelfOf[record](ring, kind), invited: keyring.ShelfOf[invitation](ring, joinKind), most: most, sure: map[string]sure{}}
}

// Machine is one that has a token.
type Machine struct {
	Name   string
	Issued time.Time
}

// Issue returns a new token of a machine; an older one is not valid any more, even after an
// error. The error is [ErrFull], one of Redis, or one of [keyring.Shelf].
func (m *Machines) Issue(ctx context.Context, name string) (token string, err error) {
	now, err := m.db.Now(ctx)
	if err != nil {
		return "", fmt.Errorf("machines: %w", err)
	}
	token = name + tunnel.Separator + rand.Text()
	r := record{Name: name, Hash: hashOf(token), Issued: now.UnixMilli()}
	if err := m.put(ctx, r); err != nil {
		return "", err
	}
	reply, err := m.db.Run(ctx, issueScript, name, r.plain(), m.most)
	switch {
	case err != nil:
		return "", fmt.Errorf("machines: %w", err)
	case len(reply) == 1 && reply[0] == "full":
		return "", errors.Join(ErrFull, m.remove(ctx, name))
	}
	return token, nil
}

// Revoke makes a machine's token invalid, and reports whether there was one. After an error
// it may still be valid.
func (m *Machines) Revoke(ctx context.Context, name string) (bool, error) {
	_, found, err := m.shelf.Get(ctx, name)
	if err != nil && !errors.Is(err, keyring.ErrForged) {
		return false, err
	}
	if err := m.remove(ctx, name); err != nil {
		return false, err
	}
	reply, err := m.db.Run(ctx, revokeScript, name)
	if err != nil {
		return false, fmt.Errorf("machines: %w", err)
	}
	return found || len(reply) == 1 && reply[0] == "1", nil
}

// Find returns the machine that a token belongs to; ok is false for one that is not valid.
func (m *Machines) Find(ctx context.Context, token string) (name string, ok bool, err error) {
	name, secret, found := strings.Cut(token, tunnel.Separator)
	if !found || name == "" || secret == "" || len(token) > maxToken {
		return "", false, nil
	}
	reply, err := m.db.Run(ctx, readScript, name)
	if err != nil {
		return "", false, fmt.Errorf("machines: %w", err)
	}
	if len(reply) != 2 {
		return "", false, nil
	}
	_, hash, _ := strings.Cut(reply[1], " ")
	if subtle.ConstantTimeCompare([]byte(hash), []byte(hashOf(token))) != 1 {
		return "", false, nil
	}
	ok, err = m.counts(ctx, name, hash)
	return name, ok, err
}

// maxToken bounds a token in bytes: a name has 64 at most.
const maxToken = 256

// List returns all machines that have a token, sorted by name.
func (m *Machines) List(ctx context.Context) ([]Machine, error) {
	ids, err := m.shelf.IDs(ctx)
	if err != nil {
		return nil, err
	}
	var list []Machine
	for _, id := range ids {
		switch r, found, err := m.shelf.Read(ctx, id); {
		case found:
			list = append(list, Machine{r.Name, time.UnixMilli(r.Issued)})
		case err != nil && !errors.Is(err, keyring.ErrForged):
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
