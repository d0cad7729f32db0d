package dispatch

import (
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/tenantlru"
)

// affinity remembers which instance ran each client's last job. Routes of custom nodes keep state
// there that no other instance has. If a client is forgotten, its call goes to the primary.
type affinity struct{ names tenantlru.Map[string] }

func (a *affinity) note(tenant, client, instance string) {
	if client != "" {
		a.names.Change(tenant, client, func(name *string) { *name = instance })
	}
}

func (a *affinity) of(tenant, client string) (instance string) {
	a.names.Read(tenant, client, func(name *string) { instance = *name })
	return instance
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

// WarmFor returns the instances whose last job was this client's: freeing their memory costs nobody
// else anything.
func (d *Dispatcher) WarmFor(tenant, client string) []*comfyui.Client {
	var warm []*comfyui.Client
	for _, conn := range d.connected() {
		if conn.ranLast(tenant, client) {
			warm = append(warm, conn.client)
		}
	}
	return warm
}
