package job

import "slices"

// Requester is who submits jobs, opens sockets, and hears of events.
type Requester struct {
	// Tenant pays for the work and owns files and history.
	Tenant string
	// Caller is the scope of status counts, bare interrupts and clears: a login,
	// else a client id, a browser or an address. Package api defines it.
	Caller string
	// Client is the client_id whose socket gets the messages; empty for none.
	Client string
}

// Owner says which jobs are a requester's own.
type Owner struct {
	// Callers are the names under which it has posted them.
	Callers []string
	// Place is where it has posted them from, under any name; empty for a requester that
	// says who it is.
	Place string
}

// Has reports whether a job is the owner's.
func (o Owner) Has(j Job) bool {
	return slices.Contains(o.Callers, j.Caller) || o.Place != "" && j.Place == o.Place
}

// Viewer is somebody who looks at jobs and at the fleet.
type Viewer struct {
	// Tenant is whose jobs are the viewer's own.
	Tenant string
	// Login says that the tenant comes from a login.
	Login bool
	// Trusted says that the viewer may speak for every tenant.
	Trusted bool
	// Operator says that the viewer runs the hub: it sees everything and may use an
	// operator's commands. Package api decides it.
	Operator bool
}
