package hub

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/keyring"
)

// Operator is what whoever runs the hub may do and see.
type Operator struct {
	fleet *fleet.Registry
	// started says that what follows is set.
	started   *atomic.Bool
	dispatch  *dispatch.Dispatcher
	ring      *keyring.Ring
	admission *admission
}

// Instances is the whole fleet: with the addresses of all instances and the ids of
// all prompts.
func (o *Operator) Instances() []fleet.Instance { return o.fleet.Instances() }

// Drain lets an instance finish its run and gives it no other. It reports
// whether the instance is known.
func (o *Operator) Drain(name string) bool { return o.fleet.SetDraining(name, true) }

// Resume undoes Drain.
func (o *Operator) Resume(name string) bool {
	ok := o.fleet.SetDraining(name, false)
	if o.started.Load() {
		o.dispatch.Wake()
	}
	return ok
}

// Errors of [Operator.ForgetAgent].
var (
	ErrAgentAlive   = errors.New("the agent is alive: stop it first, or give the other one another --name")
	ErrAgentUnknown = errors.New("no agent of that name is known")
)

// ForgetAgent lets an agent with another key have the name of one that is gone:
// its machine was set up anew, say. What the fleet knows of it goes too. The
// errors are [ErrAgentAlive], [ErrAgentUnknown], or one of Redis.
func (o *Operator) ForgetAgent(ctx context.Context, name string) error {
	if !o.started.Load() {
		return ErrNotStarted
	}
	if o.fleet.Present(name) {
		return ErrAgentAlive
	}
	pinned, err := o.admission.forget(ctx, name)
	if err != nil {
		return err
	}
	if known := o.fleet.ForgetAgent(name); !known && !pinned {
		return ErrAgentUnknown
	}
	return nil
}

// RotateKeys makes a new key for links and API keys, for all hubs of the
// storage. It is used once every hub knows it; what older keys have made is
// valid for as long as it would have been.
func (o *Operator) RotateKeys(ctx context.Context) (keyring.Rotation, error) {
	if !o.started.Load() {
		return keyring.Rotation{}, ErrNotStarted
	}
	return o.ring.Rotate(ctx)
}
