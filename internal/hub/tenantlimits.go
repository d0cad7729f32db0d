package hub

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/job"
)

// TenantLimits bound how much one tenant may take of what everybody shares. A limit that is set
// holds for each tenant. One that is zero has a default; see limitsOf.
type TenantLimits struct {
	// Waiting bounds a tenant's waiting jobs; further prompts get 429.
	// Default: a quarter of MaxQueue.
	Waiting int
	// QueueSize bounds the bytes of these jobs. Default: a quarter of
	// MaxQueueSize.
	QueueSize int64
	// Running bounds a tenant's runs. Default: no bound.
	Running int
	// GPUTime bounds the instance time that a tenant may use within 24 hours; further prompts get
	// 429, and no waiting one begins. Default: no bound.
	GPUTime time.Duration
	// Rate bounds the prompts that a tenant may post a minute; that many may arrive at once.
	// Further ones get 429. Default: no bound.
	Rate int
	// Storage bounds the bytes of a tenant's uploads and of the files that its jobs have made,
	// together. Beyond it, its prompts get 429. Default: no bound.
	Storage int64
	// Band is the highest band of a tenant's jobs, and the band of those that ask for none.
	// Default: the normal one.
	Band Band
	// Sockets bounds a tenant's open sockets. Default: a quarter of MaxSockets.
	Sockets int
	// History bounds a tenant's ended jobs; the oldest go. Default:
	// HistoryEntries, which the tenant with the most entries pays for.
	History int
	// HistorySize bounds the bytes of the files that a tenant's jobs have made; the oldest jobs go,
	// with their files. Default: no bound except the HistorySize of all, which the tenant with the
	// most pays for.
	HistorySize int64
	// Userdata bounds the bytes of a tenant's settings and user files.
	// Default: 1 GiB.
	Userdata int64
	// UserdataFiles bounds the number of these files and of their folders.
	// Default: 10000.
	UserdataFiles int
	// Inputs bounds the bytes of a tenant's uploads; equal files count once.
	// Default: 50 GiB.
	Inputs int64
	// InputFiles bounds the number of a tenant's uploads. Default: 100000.
	InputFiles int
}

// Band says which jobs the tenant's go before.
type Band = job.Band

// ParseBand reads the name of a band.
func ParseBand(name string) (Band, bool) { return job.ParseBand(name) }

// quarter returns how much of a shared limit one tenant gets, so that three others can have the
// same and a fourth is still served.
func quarter[T int | int64](whole T) T { return max(whole/4, 1) }

// limitsOf returns the limits of a tenant; zero means no bound except everybody's. This is the one
// place that decides which tenants the defaults bind. Tenants who log in share the hub with others
// and get a part of it. Those who do not log in are one tenant together: alone, they are everybody,
// and have the whole hub as they would have a ComfyUI; beside people who log in they are one tenant
// among others.
func (h *Hub) limitsOf(tenant string) TenantLimits {
	s := h.Settings()
	l := s.TenantLimits.but(s.TenantLimitsOf[tenant])
	if h.keys != nil {
		l = l.but(byKeys(h.keys.Limits(tenant)))
	}
	fill(&l.History, s.HistoryEntries)
	if !h.shares(tenant) {
		return l
	}
	fill(&l.Waiting, quarter(s.MaxQueue))
	fill(&l.QueueSize, quarter(s.MaxQueueSize))
	fill(&l.Sockets, quarter(s.MaxSockets))
	fill(&l.Userdata, 1<<30)
	fill(&l.UserdataFiles, 10_000)
	fill(&l.Inputs, 50<<30)
	fill(&l.InputFiles, 100_000)
	return l
}

// queue and runs are the limits that the queue enforces.
func (l TenantLimits) queue() (jobs int, bytes int64) { return l.Waiting, l.QueueSize }

func (l TenantLimits) runs() (running int, daily time.Duration) { return l.Running, l.GPUTime }

// but returns the limits with those of a single tenant in their place where they are set.
func (l TenantLimits) but(own TenantLimits) TenantLimits {
	fill(&own.Waiting, l.Waiting)
	fill(&own.QueueSize, l.QueueSize)
	fill(&own.Running, l.Running)
	fill(&own.GPUTime, l.GPUTime)
	fill(&own.Rate, l.Rate)
	fill(&own.Storage, l.Storage)
	fill(&own.Band, l.Band)
	fill(&own.Sockets, l.Sockets)
	fill(&own.Userdata, l.Userdata)
	fill(&own.UserdataFiles, l.UserdataFiles)
	fill(&own.Inputs, l.Inputs)
	fill(&own.InputFiles, l.InputFiles)
	own.History, own.HistorySize = l.History, l.HistorySize
	return own
}

// byKeys returns the limits that API keys give their tenant. They take precedence over those of the
// configuration.
func byKeys(l apikeys.Limits) TenantLimits {
	return TenantLimits{Running: l.Running, Waiting: l.Waiting, GPUTime: time.Duration(l.GPUSeconds) * time.Second, Rate: l.Rate}
}

// weightOf returns a tenant's share in the time of the instances.
func (h *Hub) weightOf(tenant string) float64 {
	if h.keys != nil {
		if weight := h.keys.Limits(tenant).Weight; weight > 0 {
			return weight
		}
	}
	if weight, ok := h.Settings().TenantWeights[tenant]; ok {
		return weight
	}
	return 1
}

// shares reports whether a tenant has to leave room for others.
func (h *Hub) shares(tenant string) bool {
	return tenant != job.DefaultTenant || h.logins.lately()
}
