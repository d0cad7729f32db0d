package view

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// maxDismissing bounds the tenants whose dismissed hints are remembered.
const maxDismissing = 10_000

// ErrFull says that no more can be remembered.
var ErrFull = errors.New("view: too many tenants have dismissed hints")

var (
	//go:embed scripts/dismiss.lua
	dismissLua string
	//go:embed scripts/restore.lua
	restoreLua string

	dismissScript = redis.NewScript("view/dismiss", redis.Durable, dismissLua)
	restoreScript = redis.NewScript("view/restore", redis.Durable, restoreLua)
)

// Dismissed remembers which hints tenants do not want to see, until they want to again.
type Dismissed struct{ DB *redis.DB }

func (d Dismissed) key() string { return d.DB.Key("hints", "dismissed") }

// Add has a tenant see no more hints of a name, which must be one of the names of package hints. The
// error may be ErrFull.
func (d Dismissed) Add(ctx context.Context, tenant, name string) error {
	reply, err := d.DB.Run(ctx, dismissScript, redis.Pack(tenant), name, maxDismissing)
	switch {
	case err != nil:
		return fmt.Errorf("view: %w", err)
	case reply[0] == "full":
		return ErrFull
	}
	return nil
}

// Remove has a tenant see hints of a name again.
func (d Dismissed) Remove(ctx context.Context, tenant, name string) error {
	if _, err := d.DB.Run(ctx, restoreScript, redis.Pack(tenant), name); err != nil {
		return fmt.Errorf("view: %w", err)
	}
	return nil
}

// Of returns the names of the hints that a tenant does not want to see.
func (d Dismissed) Of(ctx context.Context, tenant string) ([]string, error) {
	names, err := d.DB.Client().HGet(ctx, d.key(), redis.Pack(tenant)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("view: %w", err)
	}
	return strings.Fields(names), nil
}
