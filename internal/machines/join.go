package machines

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/tunnel"
)

// joinKind is that of the records of tokens for joining.
const joinKind = "joins"

// maxInvitations bounds the tokens for joining that were not used yet.
const maxInvitations = 4000

//go:embed scripts/join.lua
var joinLua string

// Durable, because a token that was used must not be good again after a crash.
var joinScript = redis.NewScript("machines/join", redis.Durable, joinLua)

// invitation is what the shelf has of a token for joining.
type invitation struct {
	Name  string `json:"name"`
	Hash  string `json:"hash"`
	Until int64  `json:"until"` // in milliseconds, by Redis's clock
}

// Invite returns a token with which a machine of this name may join once, within a time. It is only
// good for getting a token of the machine, see [Machines.Join]. The error is [ErrFull], one of
// Redis, or one of [keyring.Shelf].
func (m *Machines) Invite(ctx context.Context, name string, within time.Duration) (token string, err error) {
	now, err := m.db.Now(ctx)
	if err != nil {
		return "", fmt.Errorf("machines: %w", err)
	}
	ids, err := m.invited.IDs(ctx)
	switch {
	case err != nil:
		return "", err
	case len(ids) >= maxInvitations:
		return "", ErrFull
	}
	token = name + tunnel.Separator + tunnel.Once + rand.Text()
	return token, m.invited.Put(ctx, name, invitation{name, hashOf(token), now.Add(within).UnixMilli()})
}

// Join gives the first machine that shows a token for joining a token whose SHA-256 it names in
// hexadecimal, and that nobody else knows. It may ask again. The error is [tunnel.ErrToken] for a
// token that is not valid, or not any more; [ErrFull], one of Redis, or one of [keyring.Shelf].
func (m *Machines) Join(ctx context.Context, token, hash string) error {
	name, secret, _ := strings.Cut(token, tunnel.Separator)
	if raw, err := hex.DecodeString(hash); err != nil || len(raw) != 32 || name == "" || !strings.HasPrefix(secret, tunnel.Once) || len(token) > maxToken {
		return tunnel.ErrToken
	}
	i, found, err := m.invited.Get(ctx, name)
	if err != nil && !errors.Is(err, keyring.ErrForged) {
		return err
	}
	if !found || subtle.ConstantTimeCompare([]byte(i.Hash), []byte(hashOf(token))) != 1 {
		return m.joined(ctx, name, hash)
	}
	now, err := m.db.Now(ctx)
	if err != nil {
		return fmt.Errorf("machines: %w", err)
	}
	r := record{Name: name, Hash: hash, Issued: now.UnixMilli()}
	reply, err := m.db.Run(ctx, joinScript, name, r.plain(), hash, strconv.FormatInt(i.Until, 10), m.most)
	switch {
	case err != nil:
		return fmt.Errorf("machines: %w", err)
	case len(reply) == 1 && reply[0] == "full":
		return ErrFull
	case len(reply) != 1 || reply[0] != "ok":
		return tunnel.ErrToken
	}
	if err := m.put(ctx, r); err != nil {
		return err
	}
	return m.invited.Delete(ctx, name)
}

// joined is what a machine is told that joins with a token that is not there any more: it may have
// used that itself, and have missed the answer.
func (m *Machines) joined(ctx context.Context, name, hash string) error {
	r, found, err := m.shelf.Get(ctx, name)
	if err != nil && !errors.Is(err, keyring.ErrForged) {
		return err
	}
	if !found || r.Hash != hash {
		return tunnel.ErrToken
	}
	return nil
}

// Withdraw takes away what a machine may join with, and its token.
func (m *Machines) Withdraw(ctx context.Context, name string) error {
	if err := m.invited.Delete(ctx, name); err != nil {
		return err
	}
	_, err := m.Revoke(ctx, name)
	return err
}

// Tidy removes tokens for joining that were not used in time.
func (m *Machines) Tidy(ctx context.Context) error {
	now, err := m.db.Now(ctx)
	if err != nil {
		return fmt.Errorf("machines: %w", err)
	}
	ids, err := m.invited.IDs(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		i, found, err := m.invited.Read(ctx, id)
		switch {
		case err != nil && !errors.Is(err, keyring.ErrForged):
			return err
		case found && now.UnixMilli() >= i.Until:
			if err := m.invited.Delete(ctx, i.Name); err != nil {
				return err
			}
		}
	}
	return nil
}
