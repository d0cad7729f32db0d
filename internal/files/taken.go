package files

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/redis"
)

//go:embed scripts/taken.lua
var takenLua string

var takenScript = redis.NewScript("files/taken", redis.ReadOnly, takenLua)

// Taken returns how much a tenant's uploads and the files that its jobs have made take up together,
// in bytes. Equal uploads count once.
func (s *Store) Taken(ctx context.Context, tenant string) (int64, error) {
	reply, err := s.db.Run(ctx, takenScript, tenant)
	if err != nil {
		return 0, fmt.Errorf("files: %w", err)
	}
	n, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("files: %w", err)
	}
	return n, nil
}
