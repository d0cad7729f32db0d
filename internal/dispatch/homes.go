package dispatch

import (
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// maxHomes bounds the clients whose last instance is remembered.
const maxHomes = 10_000

// homes remember the instance that ran each client's last job: routes of
// custom nodes hold state there that no other instance has.
type homes struct {
	mu   sync.Mutex
	last map[home]string
}

type home struct{ tenant, client string }

func (h *homes) note(tenant, client, instance string) {
	if client == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil || len(h.last) > maxHomes {
		h.last = map[home]string{} // forgetting costs a call to the primary
	}
	h.last[home{tenant, client}] = instance
}

func (h *homes) of(tenant, client string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[home{tenant, client}]
}

// Running is the instance that runs a job of this client, nil if none does.
func (d *Dispatcher) Running(tenant, client string) *comfyui.Client {
	for _, l := range d.open() {
		if r := l.running(); r != nil && r.job.Tenant == tenant && r.job.Client == client {
			return l.client
		}
	}
	return nil
}

// RanLast is the instance that ran this client's last job, nil if it is not
// connected.
func (d *Dispatcher) RanLast(tenant, client string) *comfyui.Client {
	if name := d.homes.of(tenant, client); name != "" {
		return d.ByName(name)
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
