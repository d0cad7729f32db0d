package hub

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// limit tells the parts how much there may be of everything.
func (h *Hub) limit(s config.Settings) {
	h.Streams.SetLimits(stream.Limits{
		ReplayWindow: s.ReplayWindow, MaxSockets: s.MaxSockets,
		TenantSockets: func(tenant string) int { return h.Tenants.Limits(tenant).Sockets },
	})
	h.intake.SetLimits(intake.Limits{Memory: s.BodyMemory, Disk: s.SpoolSize, Room: h.Disks[0].Room})
	h.Queue.SetLimits(queue.Limits{
		FIFO: s.FIFO, Weight: h.Tenants.Weight,
		MaxQueue: s.MaxQueue, MaxQueueBytes: s.MaxQueueSize, MaxAttempts: s.MaxAttempts,
		HistoryEntries: s.HistoryEntries, TenantHistory: s.TenantLimits.History,
		TenantQueue: func(tenant string) (int, int64) { return h.Tenants.Limits(tenant).Queue() },
		TenantRate:  func(tenant string) int { return h.Tenants.Limits(tenant).Rate },
		TenantRuns:  func(tenant string) (int, time.Duration) { return h.Tenants.Limits(tenant).Runs() },
	})
}

// dispatchSettings returns those of the current settings that are about runs.
func (h *Hub) dispatchSettings() dispatch.Settings {
	s := h.Settings()
	var secretsElsewhere []string
	for _, o := range s.Overflow {
		for n := range o.Max {
			if o.Secrets {
				secretsElsewhere = append(secretsElsewhere, fleet.OverflowName(o.Name, n+1))
			}
		}
	}
	return dispatch.Settings{
		Settings: run.Settings{
			StallTimeout: s.StallTimeout, ContactTimeout: s.ContactTimeout, JobTimeout: s.JobTimeout, UnrunnableTimeout: s.UnrunnableTimeout,
			Split: !s.NoSplit, Ahead: s.Lookahead > 0,
		},
		CatalogAge: s.CatalogAge, Lease: leaseTime, Overtaking: s.Overtaking, ShortFirst: s.ShortFirst, PreemptBulk: s.PreemptBulk,
		Reserved: s.Reserved, SecretsTo: s.SecretsTo, APIOnly: s.APIOnly, SecretsElsewhere: secretsElsewhere, GPUs: s.GPUs,
	}
}
