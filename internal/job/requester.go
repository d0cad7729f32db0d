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
