package scale

import "context"

// Provider starts and stops machines.
type Provider interface {
	// Set makes there be as many machines as the change says. It may be called again with the same
	// change if a hub died meanwhile. An error is shown to the operator.
	Set(ctx context.Context, c Change) error
}

// Change is what a provider is told.
type Change struct {
	// ID tells the change from all others; the same id always has the same content. Sequence grows
	// with each change of the class: a provider may ignore what is older than the newest it has
	// seen.
	ID       string `json:"id"`
	Sequence int64  `json:"sequence"`
	Class    string `json:"class"`
	// Wanted is how many machines there are to be, all in all. Start is how many of them the hub
	// does not know about yet.
	Wanted int `json:"wanted"`
	Start  int `json:"start"`
	// Remove are the names of instances that are drained, and whose machines are to go; they are
	// not counted in Wanted. Keep are those that must not go: they may be working.
	Remove []string `json:"remove"`
	Keep   []string `json:"keep"`
	// Reason says in one sentence why.
	Reason string `json:"reason"`
}
