package dispatch

import (
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// maxAffinity bounds the clients of a tenant whose last instance is remembered.
const maxAffinity = 10_000

// affinity remembers the instance that ran each client's last job. Routes of
// custom nodes keep state there that no other instance has.
type affinity struct {
	mu sync.Mutex
	// tenants maps each client of a tenant to the name of an instance. A tenant
	// with too many clients loses its own entries, not those of others.
	tenants map[string]map[string]string
}

func (a *affinity) note(tenant, client, instance string) {
	if client == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tenants == nil {
		a.tenants = map[string]map[string]string{}
	}
	last := a.tenants[tenant]
	if last == nil || len(last) >= maxAffinity {
		last = map[string]string{} // forgetting costs a call to the primary
		a.tenants[tenant] = last
	}
	last[client] = instance
}

func (a *affinity) of(tenant, client string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tenants[tenant][client]
}

// Running returns the instance that runs a job of this client, or nil.
func (d *Dispatcher) Running(tenant, client string) *comfyui.Client {
	for _, conn := range d.servers() {
		if r := conn.running(); r != nil {
			if j := r.job(); j.Tenant == tenant && j.Client == client {
				return conn.client
			}
		}
	}
	return nil
}

// RanLast returns the instance that ran this client's last job, or nil if that
// instance is not connected.
func (d *Dispatcher) RanLast(tenant, client string) *comfyui.Client {
	if name := d.affinity.of(tenant, client); name != "" {
		return d.Connected.ByName(name)
	}
	return nil
}

// WarmFor returns the instances whose last job was this client's: nobody else
// loses anything when their memory is freed.
func (d *Dispatcher) WarmFor(tenant, client string) []*comfyui.Client {
	var warm []*comfyui.Client
	for _, conn := range d.connected() {
		if conn.ranLast(tenant, client) {
			warm = append(warm, conn.client)
		}
	}
	return warm
}
