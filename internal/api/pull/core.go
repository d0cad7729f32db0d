package pull

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/worker"
)

// Core is what the room needs of a hub.
type Core struct {
	Settings *config.Settings
	// Tunnels know the machines that have tokens. The error is [tunnel.ErrToken] for a token that is
	// not valid.
	Tunnels interface {
		Machine(ctx context.Context, token string) (string, error)
	}
	// Workers are those of a machine, by the id that each has given itself.
	Workers interface {
		Enlist(machine, id, device string, objectInfo []byte) (*worker.Worker, error)
		Named(machine, id string, classes []string, device string) (*worker.Worker, error)
		Find(machine, id string) (*worker.Worker, error)
		Holder(machine, job string) (*worker.Worker, error)
		Wait(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc)
	}
}
