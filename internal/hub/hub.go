package hub

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrNotStarted is the readiness of a hub before its first Start.
var ErrNotStarted = errors.New("hub: not started")

// Hub is one hub: all that survives a reload of the configuration.
type Hub struct {
	id Identity
}

// Visitor is what the web server knows of a request beyond its bytes.
type Visitor struct {
	// Tenant pays for the work; empty means the default tenant.
	Tenant string
	// IP is the client's address as the web server trusts it.
	IP string
	// Live asks for interleaved events instead of a serial stream.
	Live bool
}

// New builds a hub without any outside effect: nothing is opened, dialled or
// started before Start.
func New(id Identity) *Hub { return &Hub{id: id} }

// Start opens Redis and gossip on its first call and applies the settings on
// every call. It does not wait for Redis or for agents to be there.
func (h *Hub) Start(ctx context.Context, s Settings) error { return nil }

// Close ends sockets with a going-away frame, leaves the gossip and closes
// Redis. Runs go on at their instances and are adopted by the next hub.
func (h *Hub) Close(ctx context.Context) error { return nil }

// Live is nil while the process works at all.
func (h *Hub) Live() error { return nil }

// Ready is nil when the hub can accept prompts: started, Redis answers.
func (h *Hub) Ready(ctx context.Context) error { return ErrNotStarted }

// Serve answers one request of ComfyUI's HTTP and WebSocket API, or of the
// hub's own under /hub/.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, v Visitor) {}

// Collectors are the hub's metrics. They are made once and live as long as
// the hub, so that counters go on through reloads.
func (h *Hub) Collectors() []prometheus.Collector { return nil }

// Drain lets an instance finish its run and gives it no other; Resume takes
// that back. Both report whether the instance is known.
func (h *Hub) Drain(name string) bool { return false }

// Resume undoes Drain.
func (h *Hub) Resume(name string) bool { return false }

// InstancesJSON is the answer of GET /hub/instances.
func (h *Hub) InstancesJSON() []byte { return []byte("[]") }
