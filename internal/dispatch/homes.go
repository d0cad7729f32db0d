package dispatch

import (
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// maxHomes bounds the clients of a tenant whose last instance is remembered.
const maxHomes = 10_000

// homes remember the instance that ran each client's last job: routes of
// custom nodes hold state there that no other instance has.
type homes struct {
	mu sync.Mutex
	// tenants have names of instances by client. A tenant with too many
	// clients makes the hub forget its own, not those of others.
	tenants map[string]map[string]string
}

func (h *homes) note(tenant, client, instance string) {
	if client == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tenants == nil {
		h.tenants = map[string]map[string]string{}
	}
	last := h.tenants[tenant]
	if last == nil || len(last) >= maxHomes {
		last = map[string]string{} // forgetting costs a call to the primary
		h.tenants[tenant] = last
	}
	last[client] = instance
}

func (h *homes) of(tenant, client string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tenants[tenant][client]
}

// Running is the instance that runs a job of this client, nil if none does.
func (d *Dispatcher) Running(tenant, client string) *comfyui.Client {
	for _, l := range d.open() {
		if r := l.running(); r != nil {
			if j := r.job(); j.Tenant == tenant && j.Client == client {
				return l.client
			}
		}
	}
	return nil
}

// RanLast is the instance that ran this client's last job, nil if it is not
// connected.
func (d *Dispatcher) RanLast(tenant, client string) *comfyui.Client {
	if name := d.homes.of(tenant, client); name != "" {
		return d.Connected.ByName(name)
	}
	return nil
}

// WarmFor are the instances on which this client's job was the last: nobody
// loses anything when their memory is freed for it.
func (d *Dispatcher) WarmFor(tenant, client string) []*comfyui.Client {
	var warm []*comfyui.Client
	for _, l := range d.open() {
		if l.ranLast(tenant, client) {
			warm = append(warm, l.client)
		}
	}
	return warm
}
