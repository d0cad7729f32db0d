package upstream

import (
	"context"
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
)

// Free makes instances unload their models, free their memory, or both: those that the FreePolicy
// allows for these clients of a tenant. An instance that does not answer has nothing to free, so
// errors are only logged.
func (n *Instances) Free(ctx context.Context, tenant string, clients []string, models, memory bool) {
	var from []*comfyui.Client
	switch n.Settings().Free {
	case config.FreeAll:
		from = n.Dispatch.Instances.Clients()
	case config.FreeOwn:
		for _, id := range clients {
			from = append(from, n.Dispatch.Affinity.WarmFor(tenant, id)...)
		}
	case config.FreeOff:
	}
	var wait sync.WaitGroup
	for _, c := range from {
		wait.Go(func() {
			if err := c.Free(ctx, models, memory); err != nil {
				n.Log().Debug("an instance does not free its memory", "error", err)
			} else if models {
				n.Dispatch.Instances.Unloaded(c)
			}
		})
	}
	wait.Wait()
}
