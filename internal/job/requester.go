package job

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
