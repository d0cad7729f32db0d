package redis

import (
	"context"
	"log/slog"

	goredis "github.com/redis/go-redis/v9"
)

// embedded is the server inside this process.
type embedded struct{}

func startEmbedded(ctx context.Context, dir string, log *slog.Logger) (*embedded, error) {
	return &embedded{}, nil
}
func (e *embedded) open() goredis.UniversalClient  { return nil }
func (e *embedded) sync(ctx context.Context) error { return nil }
func (e *embedded) close() error                   { return nil }
