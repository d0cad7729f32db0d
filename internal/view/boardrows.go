package view

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/stats"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

// InstanceRow is an instance as those who watch see it. What a viewer may not learn is empty. Times
// are Unix milliseconds.
type InstanceRow struct {
	Name, Kind, GPU, Version string
	State                    fleet.State
	// Reason says why it takes no job, Fault what last went wrong there and FaultAt when.
	Reason, Fault string
	FaultAt       int64
	URL, Agent    string
	// Reserved are the tenants it is reserved for, separated by commas.
	Reserved string
	// VRAMTotal and VRAMFree are in bytes; the latter in steps, so that it changes rarely.
	VRAMTotal, VRAMFree int64
	// Foreign counts other people's prompts there, and Load says what else is using the GPU.
	Foreign int
	Load    string
	// OthersMemory is how much of the GPU's memory other programs hold, in bytes, and OthersUse how
	// busy they keep it in percent, as far as known.
	OthersMemory int64
	OthersUse    int
	// Restarts counts the restarts by the agent since it last went well, RestartAt is when the next
	// one is planned, and RestartError why the last one failed.
	Restarts     int
	RestartAt    int64
	RestartError string
	// DiskFree and DiskSize are those of the instance's fullest disk in bytes, 0 if none is known;
	// the former in steps.
	DiskFree, DiskSize int64
	// Models are those that it has loaded, separated by commas.
	Models string
	// Job is the prompt id of the job there and Tenant its owner, Key the hub's name for it. Began
	// is when it began to execute, ETA when it will be finished, in steps, 0 if unknown. Node and Class
	// are what is running, and Progress is that of the node, from 0 to 1 in steps.
	Job, Tenant, Key string
	Began, ETA       int64
	Node, Class      string
	Progress         float64
	// Boot is when its process began, and LastSeen when an offline one was last heard from.
	Boot, LastSeen int64
	// Drained says that an operator has paused it.
	Drained bool
	// Aside says that it is sick because its runs keep failing.
	Aside bool
}

// vramStep and diskStep are the steps of VRAMFree and DiskFree.
const vramStep, diskStep = 64 << 20, 1 << 30

// instanceRow returns an instance as a sight shows it. j is the job there, as far as known.
func instanceRow(s sight, i fleet.Instance, a run.Activity, j job.Job, fault stats.Fault) InstanceRow {
	r := InstanceRow{
		Name: i.Name, Kind: i.Kind, GPU: i.Report.GPU, Version: i.Report.Version, State: i.State,
		VRAMTotal: i.Report.VRAMTotal, VRAMFree: i.Report.VRAMFree / vramStep * vramStep, Boot: i.Report.Boot, Drained: i.Drained, Aside: i.Aside,
	}
	if i.State == fleet.Offline {
		r.Boot = 0
		if !i.LastSeen.IsZero() {
			r.LastSeen = i.LastSeen.UnixMilli()
		}
	}
	own := j.Key != "" && s.sees(j.Tenant)
	if s.all {
		r.URL, r.Agent, r.Reason, r.Load, r.Foreign = i.URL, i.Agent, i.Reason, i.Report.Load, i.Report.Foreign
		r.Restarts, r.RestartAt, r.RestartError = i.Report.Restarts, i.Report.RestartAt, i.Report.RestartError
		r.DiskFree, r.DiskSize = i.Report.DiskFree/diskStep*diskStep, i.Report.DiskSize
		r.OthersMemory, r.OthersUse = i.Report.OthersMemory, i.Report.OthersUse
		r.Reserved = strings.Join(i.Reserved, ", ")
		r.Fault, r.FaultAt = fault.Reason, fault.At
	}
	if s.all || own {
		r.Models = strings.Join(a.Models, ", ")
	}
	if own {
		r.Job, r.Tenant, r.Key = j.ID, j.Tenant, j.Key
		r.Node, r.Class = a.Node, a.Class
		r.Progress = math.Round(a.Progress*100) / 100
		switch {
		case !a.Began.IsZero():
			r.Began = a.Began.UnixMilli()
		case a.Job.Key == "":
			r.Began, r.Progress = j.StartedAt, j.Progress
		}
	}
	return r
}

// JobRow is a waiting job as those who watch see it. Times are Unix milliseconds.
type JobRow struct {
	// Key is the hub's name for the job. ID is its prompt id, unique within its Tenant.
	Key, ID, Tenant string
	// Order sorts a tenant's rows by plain byte order: the smallest goes first, once paused ones are resumed.
	Order string
	// Position is its place in the queue, counting from 0; -1 if it is paused or unknown.
	Position int
	// ETA is when it will be finished, in steps; 0 if unknown.
	ETA int64
	// Why says why it is waiting, empty if it is only waiting for its turn.
	Why      string
	Priority int
	Band     job.Band
	Paused   bool
	Attempts int
	Created  int64
}

// etaStep returns the step in which an ETA is shown, depending on how far away it is: the ETA must
// not change at every look.
func etaStep(in time.Duration) time.Duration {
	switch {
	case in < time.Minute:
		return 5 * time.Second
	case in < 10*time.Minute:
		return 15 * time.Second
	}
	return time.Minute
}

// etaAt returns a time in steps, or the last one if that is still close.
func etaAt(now time.Time, in time.Duration, last int64) int64 {
	if in < 0 {
		return 0
	}
	step, at := etaStep(in), now.Add(in)
	if last != 0 && at.Sub(time.UnixMilli(last)).Abs() < step {
		return last
	}
	return at.Truncate(time.Second).UnixMilli()
}

// QueueCounts is the jobs in a few numbers.
type QueueCounts struct {
	// Waiting and Running are everybody's; Own are those that the viewer sees.
	Waiting, Running       int
	OwnWaiting, OwnRunning int
	// Paused says that an operator has paused the whole queue, and TenantPaused the
	// viewer's own jobs.
	Paused, TenantPaused bool
}

// BoardChange is what has changed since the previous one.
type BoardChange struct {
	// Whole says that it shows everything: forget what was known before.
	Whole bool
	// Instances are pairs of a row and what it was before, which has no name for a new one.
	Instances []Changed[InstanceRow]
	// GoneInstances are the names of those that are no longer there.
	GoneInstances []string
	Jobs          []Changed[JobRow]
	GoneJobs      []string
	// Counts is nil if nothing has changed.
	Counts *QueueCounts
	// WebUI and Strangers, see [Stats], are nil if nothing has changed.
	WebUI     *origin.WebUISource
	Strangers *string

	encoded encoded
}

// Changed is a row as it is now and as it was.
type Changed[T any] struct{ Now, Before T }

// Empty reports whether nothing has changed.
func (c *BoardChange) Empty() bool {
	return !c.Whole && len(c.Instances)+len(c.GoneInstances)+len(c.Jobs)+len(c.GoneJobs) == 0 && c.Counts == nil && c.WebUI == nil && c.Strangers == nil
}

// changed lists what is new or different in rows, and the names of what is gone.
func changed[T comparable](before, now map[string]T) (rows []Changed[T], gone []string) {
	for name, row := range now {
		if was, known := before[name]; !known || was != row {
			rows = append(rows, Changed[T]{Now: row, Before: was})
		}
	}
	for name := range before {
		if _, known := now[name]; !known {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return rows, gone
}
