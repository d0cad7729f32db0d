package hub

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/config"
)

// FindKey returns what the secret of an API key gives access to. The hub must have started. The
// errors are those of [apikeys.Keys.Find].
func (h *Hub) FindKey(ctx context.Context, secret string) (apikeys.Access, error) {
	return h.keys.Find(ctx, secret)
}

// AddKey makes an API key and returns it with its secret, which nobody can read again. The errors
// are those of [apikeys.Keys.Add].
func (o *Operator) AddKey(ctx context.Context, w apikeys.Wanted) (apikeys.Key, string, error) {
	if !o.started.Load() {
		return apikeys.Key{}, "", config.ErrNotStarted
	}
	return o.keys.Add(ctx, w)
}

// RevokeKey makes an API key invalid, and reports whether there was one. Requests and sockets with
// the key end: at this hub at once, at others within a second.
func (o *Operator) RevokeKey(ctx context.Context, name string) (bool, error) {
	if !o.started.Load() {
		return false, config.ErrNotStarted
	}
	return o.keys.Revoke(ctx, name)
}

// Keys returns all API keys, without their secrets.
func (o *Operator) Keys(ctx context.Context) ([]apikeys.Key, error) {
	if !o.started.Load() {
		return nil, config.ErrNotStarted
	}
	return o.keys.List(ctx)
}
