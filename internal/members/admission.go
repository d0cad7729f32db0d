package members

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/pins"
)

const (
	// ownerFresh is how long the owner of a name is not asked about again.
	ownerFresh = time.Minute
	// ownerAgain is the same while somebody else claims the name: the operator may have forgotten
	// the owner at another hub.
	ownerAgain = 5 * time.Second
	// askTimeout bounds one question, maxAsking the questions at one time.
	askTimeout = 5 * time.Second
	maxAsking  = 16
	// maxOwners bounds the names whose owners are remembered here.
	maxOwners = 20_000
)

// errPinned says that an agent's name belongs to another key.
var errPinned = errors.New("the name belongs to an agent with another key")

// errUnchecked says that nobody can tell right now who owns a name.
var errUnchecked = errors.New("whose the name is cannot be checked while Redis or the storage is away")

// errDamaged says that the record of a name was not signed by a hub.
var errDamaged = errors.New("the record of whose the name is was damaged in the storage")

// admission lets in reports that come from the owner of their agent's name. An owner once known
// goes on being known while Redis is away. Without owners everything gets in: such a fleet has no
// gossip key, and is on this machine only.
type admission struct {
	owners Owners
	take   func(fleet.Report)
	refuse func(fleet.Report, error)
	ctx    context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	asking int
	names  map[string]*nameOwner
}

// nameOwner is what is known about one name.
type nameOwner struct {
	key     string // the owner's, empty before the first answer
	checked time.Time
	asking  bool
	waiting *fleet.Report // waiting for the answer
}

func newAdmission(o Owners, take func(fleet.Report), refuse func(fleet.Report, error)) *admission {
	ctx, stop := context.WithCancel(context.Background())
	return &admission{owners: o, take: take, refuse: refuse, ctx: ctx, stop: stop, names: map[string]*nameOwner{}}
}

// admit takes a report or refuses it, at once if the owner of its name is known, else as soon as it
// is. It does not wait.
func (a *admission) admit(r fleet.Report) {
	if a.owners == nil {
		a.take(r)
		return
	}
	switch owner, known := a.owner(r); {
	case !known:
	case owner == r.Sender.Key:
		a.take(r)
	default:
		a.refuse(r, pinnedError(owner, r))
	}
}

func pinnedError(owner string, r fleet.Report) error {
	return fmt.Errorf("%w: %s, not %s; if the machine was reinstalled, POST /comfyhub/forget?agent=%s on the hub's admin endpoint",
		errPinned, gossip.Fingerprint(owner), gossip.Fingerprint(r.Sender.Key), r.Agent)
}

// owner returns the key that owns the name of a report. While that is not known, the report waits
// for it.
func (a *admission) owner(r fleet.Report) (key string, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.names[r.Agent]
	if o == nil {
		if len(a.names) >= maxOwners {
			if a.forgetOld(); len(a.names) >= maxOwners {
				return "", false // reports are repeated
			}
		}
		o = &nameOwner{}
		a.names[r.Agent] = o
	}
	age := time.Since(o.checked)
	mine := o.key == r.Sender.Key
	if o.key != "" && (mine || age < ownerAgain) {
		if mine && age > ownerFresh {
			a.ask(r.Agent, r.Sender.Key, o)
		}
		return o.key, true
	}
	o.waiting = &r
	a.ask(r.Agent, r.Sender.Key, o)
	return "", false
}

// ask finds out who owns a name. The caller holds the lock.
func (a *admission) ask(name, key string, o *nameOwner) {
	if o.asking || a.closed || a.asking >= maxAsking {
		return // reports are repeated
	}
	o.asking = true
	a.asking++
	a.work.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, askTimeout)
		defer cancel()
		owner, err := a.owners.Claim(ctx, name, key)
		a.answered(o, owner, err)
	})
}

func (a *admission) answered(o *nameOwner, owner string, err error) {
	a.mu.Lock()
	a.asking--
	o.asking = false
	if err == nil {
		o.key, o.checked = owner, time.Now()
	}
	waiting := o.waiting
	o.waiting = nil
	over := a.closed
	a.mu.Unlock()
	switch {
	case waiting == nil || over:
	case err == nil && owner == waiting.Sender.Key:
		a.take(*waiting)
	case err == nil:
		a.refuse(*waiting, pinnedError(owner, *waiting))
	case errors.Is(err, pins.ErrFull):
		a.refuse(*waiting, err)
	case errors.Is(err, keyring.ErrForged):
		a.refuse(*waiting, fmt.Errorf("%w; if the machine is the right one, POST /comfyhub/forget?agent=%s on the hub's admin endpoint: it then gets the name again", errDamaged, waiting.Agent))
	default:
		a.refuse(*waiting, errUnchecked)
	}
}

// forgetOld makes room. The caller holds the lock.
func (a *admission) forgetOld() {
	for name, o := range a.names {
		if !o.asking && time.Since(o.checked) > ownerFresh {
			delete(a.names, name)
		}
	}
}

// forget takes a name away from its owner.
func (a *admission) forget(ctx context.Context, name string) (bool, error) {
	if a.owners == nil {
		return false, nil
	}
	known, err := a.owners.Forget(ctx, name)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.names, name)
	return known, err
}

func (a *admission) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.stop()
	a.work.Wait()
}
