package hub

import (
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/health"
	"github.com/comfyhub/comfyhub/internal/metrics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// state returns what gauges show.
func (h *Hub) state(ctx context.Context) metrics.State {
	if !h.started.Load() {
		why := h.opening.Reason()
		return metrics.State{
			Version: config.Version, Known: why != nil,
			RedisUp:   !errors.Is(why, redis.ErrUnavailable) && !errors.Is(why, health.ErrNoAnswer),
			StorageUp: !errors.Is(why, files.ErrStorage) && !errors.Is(why, health.ErrNoAnswer),
		}
	}
	live, waiting, held, err := h.Queue.CountAll(ctx)
	s := metrics.State{
		Version: config.Version, Known: true, Serves: true, RedisUp: err == nil, StorageUp: h.Storage.Health().Err() == nil,
		Waiting: waiting, Held: held, Running: live - waiting,
		Paused: h.Stops.Has(queue.StopAll), Bound: h.Bond.Err() == nil, Kept: h.Storage.Health().Kept(), Stuck: h.Dispatch.Watchdog.Stuck(),
		Classes: len(h.Inventory.Catalog().Classes()), Sockets: h.Streams.Sockets.Count(), Skew: h.DB.Clock().Skew(), Disks: h.Disks, Instances: h.Fleet.Instances(),
	}
	s.Hubs, s.Agents = h.Members.Count()
	s.Endpoints, _ = h.Endpoints.Status(ctx) // what Redis does not tell is not shown
	s.Scaled, _ = h.Scaler.Status(ctx)
	return s
}
