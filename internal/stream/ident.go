package stream

import "github.com/comfyhub/comfyhub/internal/job"

// Ident identifies who opens a socket.
type Ident struct {
	// Requester has the clientId of the query; if that is empty, one is generated.
	// Status messages count the jobs of its caller.
	job.Requester
	// Network tells apart callers of a tenant that may be strangers to each other;
	// empty if the tenant is one person.
	Network string
	// Share is whose part of the budget the client's messages count against; empty for the
	// tenant's.
	Share string
	// Live asks for interleaved events: nothing is held.
	Live bool
	// Until calls a function once the caller may no longer stay, so that its socket is closed. stop
	// prevents that. nil for callers who may stay.
	Until func(do func()) (stop func() bool)
}
