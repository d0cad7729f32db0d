package hub

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/classes"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/metrics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/retention"
	"github.com/comfyhub/comfyhub/internal/tenants"
)

// Tests of a whole hub are package hub_test: they need the rooms, which import this package. These
// are the parts that they look at.

const (
	MaxWorkers = maxWorkers
	SecretFile = secretFile
	StopsEvery = stopsEvery
)

var ErrNoAnswer = errNoAnswer

func (h *Hub) Connected() *comfyui.Clients    { return h.clients }
func (h *Hub) DB() *redis.DB                  { return h.db }
func (h *Hub) Dispatch() *dispatch.Dispatcher { return h.dispatch }
func (h *Hub) Fleet() *fleet.Registry         { return h.fleet }
func (h *Hub) Inventory() *classes.Inventory  { return h.inventory }
func (h *Hub) Janitor() *retention.Janitor    { return h.janitor }
func (h *Hub) Logins() *tenants.Logins        { return &h.logins }
func (h *Hub) Queue() *queue.Queue            { return h.queue }
func (h *Hub) Recorder() *metrics.Recorder    { return h.recorder }
func (h *Hub) Ring() *keyring.Ring            { return h.ring }
func (h *Hub) Since() time.Time               { return h.since }
func (h *Hub) Storage() *files.Storage        { return h.storage }
func (h *Hub) Store() *files.Store            { return h.store }
func (h *Hub) Tenants() *tenants.Tenants      { return h.tenants }
func (h *Hub) Transfer() *files.Transfer      { return h.transfer }

func (h *Hub) AwaitOpening()             { h.opening.busy.Wait() }
func (h *Hub) GossipAddr() string        { return h.gossip.gossip.Load().Local().Addr }
func (h *Hub) HasStop(s queue.Stop) bool { return h.stops.Has(s) }
func (h *Hub) OwesEndpoints() bool       { return !h.overflow.book.Empty() }
func (s *Workers) Stop()                 { s.stop() }

func (h *Hub) DrainToScale(ctx context.Context, instance string, on bool) error {
	return (&elastic{queue: h.queue, stops: h.stops}).Drain(ctx, instance, on)
}
