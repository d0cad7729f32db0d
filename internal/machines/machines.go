// Package machines keeps which GPU machines may join through a tunnel, and by which
// token. Redis holds only hashes: whoever reads it can join as nobody.
//
// Its key:
//
//	g:machines  hash  per machine: when its token was issued, in milliseconds, and the
//	                  SHA-256 of the token
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
	"strconv"
	"strings"
	"time"

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

// Machines are those of a Redis. They are safe for concurrent use.
type Machines struct {
	db   *redis.DB
	most int
}

// New returns the machines of a Redis.
func New(db *redis.DB) *Machines { return &Machines{db: db, most: most} }

// Machine is one that has a token.
type Machine struct {
	Name   string
	Issued time.Time
}

// Issue returns a new token of a machine; an older one is not valid any more. The error is
// [ErrFull] or one of Redis.
func (m *Machines) Issue(ctx context.Context, name string) (token string, err error) {
	token = name + tunnel.Separator + rand.Text()
	reply, err := m.db.Run(ctx, issueScript, name, hashOf(token), m.most)
	switch {
	case err != nil:
		return "", fmt.Errorf("machines: %w", err)
	case len(reply) == 1 && reply[0] == "full":
		return "", ErrFull
	}
	return token, nil
}

// Revoke makes a machine's token invalid, and reports whether there was one.
func (m *Machines) Revoke(ctx context.Context, name string) (bool, error) {
	reply, err := m.db.Run(ctx, revokeScript, name)
	if err != nil {
		return false, fmt.Errorf("machines: %w", err)
	}
	return len(reply) == 1 && reply[0] == "1", nil
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
	return name, subtle.ConstantTimeCompare([]byte(hash), []byte(hashOf(token))) == 1, nil
}

// maxToken bounds a token in bytes: a name has 64 at most.
const maxToken = 256

// List returns all machines, sorted by name.
func (m *Machines) List(ctx context.Context) ([]Machine, error) {
	reply, err := m.db.Run(ctx, readScript)
	if err != nil {
		return nil, fmt.Errorf("machines: %w", err)
	}
	var list []Machine
	for pair := range slices.Chunk(reply, 2) {
		if len(pair) < 2 {
			return nil, errors.New("machines: a name without a value")
		}
		text, _, _ := strings.Cut(pair[1], " ")
		at, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("machines: %w", err)
		}
		list = append(list, Machine{pair[0], time.UnixMilli(at)})
	}
	slices.SortFunc(list, func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
