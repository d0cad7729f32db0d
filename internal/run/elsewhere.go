package run

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Elsewhere is what a run needs to know of the rest of the fleet.
type Elsewhere interface {
	// Others returns the other connected instances that could run a job at an instance, without those
	// that cost money. requires are the job's requirements as they are stored.
	Others(than *instance.Link, j job.Job, requires []byte) []*instance.Link
	// AnotherHubHas reports whether an instance of another hub could run a tenant's job.
	AnotherHubHas(needs catalog.Requirements, tenant string) bool
	// Idle lists the instances that could take a job now.
	Idle() ([]schedule.Idle, []*catalog.Info)
	// Watched reports whether somebody is watching the fleet.
	Watched() bool
}

// Rests remembers where jobs were not taken.
type Rests interface {
	// NotTaken remembers that an instance did not take a job. itself says that the instance has refused
	// the prompt.
	NotTaken(conn *instance.Link, key string, itself bool)
	// NotHere remembers that this hub cannot run a job, though another one may. It returns how often
	// that has happened before.
	NotHere(key string) (before int)
}

// Signal makes the dispatcher look for work. It never blocks.
type Signal interface {
	// Wake says that there may be work.
	Wake()
	// WakeIn is Wake after a while.
	WakeIn(after time.Duration)
	// Freed says that an instance is idle.
	Freed()
}
