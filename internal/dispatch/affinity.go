package dispatch

import (
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/tenantlru"
)

// Affinity remembers which instance ran each client's last job. Routes of custom nodes keep state
// there that no other instance has. If a client is forgotten, its call goes to the primary.
type Affinity struct {
	instances *Instances
	names     tenantlru.Map[string]
}

func (a *Affinity) note(tenant, client, instance string) {
	if client != "" {
		a.names.Change(tenant, client, func(name *string) { *name = instance })
	}
}

func (a *Affinity) of(tenant, client string) (instance string) {
	a.names.Read(tenant, client, func(name *string) { instance = *name })
	return instance
}

// Running returns the instance that runs a job of this client, or nil.
func (a *Affinity) Running(tenant, client string) *comfyui.Client {
	for _, conn := range a.instances.Servers() {
		if r := conn.Running(); r != nil {
			if j := r.Job(); j.Tenant == tenant && j.Client == client {
				return conn.Client
			}
		}
	}
	return nil
}

// RanLast returns the instance that ran this client's last job, or nil if that
// instance is not connected.
func (a *Affinity) RanLast(tenant, client string) *comfyui.Client {
	if name := a.of(tenant, client); name != "" {
		return a.instances.Published.ByName(name)
	}
	return nil
}

// WarmFor returns the instances whose last job was this client's: freeing their memory costs nobody
// else anything.
func (a *Affinity) WarmFor(tenant, client string) []*comfyui.Client {
	var warm []*comfyui.Client
	for _, conn := range a.instances.Open() {
		if conn.RanLast(tenant, client) {
			warm = append(warm, conn.Client)
		}
	}
	return warm
}
