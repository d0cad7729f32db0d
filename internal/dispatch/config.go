package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// Settings may change while the dispatcher runs.
type Settings struct {
	run.Settings
	// Overtaking is how long a waiting job may be overtaken by jobs whose models an instance has
	// loaded, and by short ones of other tenants; if not positive, never.
	Overtaking time.Duration
	// ShortFirst lets short jobs go before long ones. It is how long a job may be overtaken in this
	// way, unless the job itself takes less time; if not positive, never.
	ShortFirst time.Duration
	// PreemptBulk lets a young run of a bulk job be interrupted for an interactive job that would
	// wait longer than this; if not positive, never.
	PreemptBulk time.Duration
	// CatalogAge is how old the hub's knowledge of an instance's classes and models may be when a
	// client asks for it.
	CatalogAge time.Duration
	// Reserved says which instances only some tenants may use.
	Reserved schedule.Reservations
	// SecretsTo says which instances get the API keys of prompts.
	SecretsTo SecretsTo
	// APIOnly are the names of instances that take only prompts whose work a paid service does; each *
	// in a name stands for any text.
	APIOnly []string
	// SecretsElsewhere are the slots of endpoints, by name, that get them as well.
	SecretsElsewhere []string
	// GPUs names the GPUs of instances, by instance name, where the operator has set them.
	GPUs map[string]string
	// Lease is the queue's; leases are renewed three times within it.
	Lease time.Duration
}

// Config is what a dispatcher works with.
type Config struct {
	Queue   *queue.Queue
	Fleet   *fleet.Registry
	Streams *stream.Streams
	// Files moves the inputs and outputs of runs.
	Files *files.Transfer
	// Paused says why no job may be given out now, or returns nil. Storage that takes no files is
	// such a reason. Call Wake once the reason is gone. May be nil.
	Paused func() error
	// Shown is passed each output of a job as the instance wrote it. May be nil.
	Shown func(tenant, instance string, output []byte)
	// Connected is told which instances are connected.
	Connected *comfyui.Clients
	// Connect makes the client of an instance.
	Connect func(fleet.Instance) (*comfyui.Client, error)
	// Library parses object_info; equal bodies are parsed once.
	Library *catalog.Library
	// Roster stores what instances can run. May be nil.
	Roster Roster
	// Overflow takes jobs for which the fleet has no time. May be nil.
	Overflow Overflow
	// Learned is told what an instance can run when it connects and whenever that changes.
	Learned func(instance string, info *catalog.Info, version comfyui.Version)
	// Unfit says why nobody will ever run a waiting job that was accepted while it was not
	// known what any instance can run; nil if somebody might. It may be nil.
	Unfit func(ctx context.Context, j job.Job, body job.Body) *comfyui.Refused
	// Logged is told the log messages of an instance, see [Logs.Subscribe]. It
	// must not block.
	Logged func(instance string, frame []byte)
	// EndedElsewhere is told of jobs that another hub has ended. It has a goroutine of its own and
	// may take its time, until ctx ends.
	EndedElsewhere func(ctx context.Context, e queue.Event)
	// Hub is the id and boot of this hub, unique per process.
	Hub string
	// HubID is the part of Hub that outlives the process.
	HubID string
	// Gone reports whether the process of another hub, which has stopped telling Redis that it is
	// alive, seems to be gone. Nil for a hub that is alone.
	Gone     func(ctx context.Context, hub string) bool
	Settings func() Settings
	// Faulted is told of lost runs and failed jobs, each with the reason. May be nil.
	Faulted func(j job.Job, instance, reason string, lost bool)
	// Traces returns the current tracer of jobs, nil for none. May be nil.
	Traces func() *traces.Tracer
	// Observe takes measurements. May be nil.
	Observe run.Observer
	Logger  *slog.Logger
}

// Roster stores what instances can run, for the next start and for other hubs.
type Roster interface {
	instance.Roster
	// Elsewhere returns, by name, what the instances can run that other hubs have now and this one
	// does not.
	Elsewhere() map[string]*catalog.Info
}
