package config

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// TenantLimits bound how much one tenant may take of what everybody shares. A limit that is set
// holds for each tenant. One that is zero has a default; see package tenants.
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
	Band job.Band
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
	// ResultCache is how old the result of a prompt may be that is given to an equal one; not
	// positive for never. Default: never.
	ResultCache time.Duration
}

// Queue returns the limits on waiting jobs that the queue enforces.
func (l TenantLimits) Queue() (jobs int, bytes int64) { return l.Waiting, l.QueueSize }

// Runs are those on runs.
func (l TenantLimits) Runs() (running int, daily time.Duration) { return l.Running, l.GPUTime }

// But returns the limits with those of a single tenant in their place where they are set.
func (l TenantLimits) But(own TenantLimits) TenantLimits {
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
	fill(&own.ResultCache, l.ResultCache)
	own.History, own.HistorySize = l.History, l.HistorySize
	return own
}
