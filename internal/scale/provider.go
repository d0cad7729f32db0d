package scale

import (
	"context"
	"time"
)

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
	// Join is for the machines to be started, if they get tokens: one each.
	Join []Join `json:"join,omitempty"`
	// Reason says in one sentence why.
	Reason string `json:"reason"`
}

// Join is what a machine may join with, once.
type Join struct {
	// Name is that of the machine, and of its instance.
	Name  string `json:"name"`
	Token string `json:"token"`
}

// Tokens lets machines join that have been started.
type Tokens interface {
	// Make returns tokens for machines of these names, unreadable. Each is good once, within a time.
	Make(ctx context.Context, names []string, within time.Duration) (sealed string, err error)
	// Open returns the tokens.
	Open(ctx context.Context, sealed string) ([]Join, error)
	// End takes away what a machine may join with, and its token.
	End(ctx context.Context, name string) error
	// Tidy removes tokens that were not used in time.
	Tidy(ctx context.Context) error
}
