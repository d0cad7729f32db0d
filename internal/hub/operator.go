package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/lastknown"
	"github.com/comfyhub/comfyhub/internal/machines"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/view"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

// Operator is what whoever runs the hub may do and see.
//
// Many methods: one per command, each of a few lines.
type Operator struct {
	fleet    *fleet.Registry
	clients  *comfyui.Clients
	settings func() *config.Settings
	// started says that the fields below are set.
	started   *atomic.Bool
	stops     *stops
	ring      *keyring.Ring
	authority *gossip.Authority
	admission *admission
	pages     *origin.PageSource
	known     *lastknown.Answers
	machines  *machines.Machines
	insight   *view.Insight
	canceller *submit.Canceller
	keys      *apikeys.Keys
	bond      *files.Bond
	store     *files.Store
}

// Instances returns the whole fleet, with the addresses of all instances and the ids of all
// prompts.
func (o *Operator) Instances() []fleet.Instance {
	return o.settings().WithReserved(o.fleet.Instances())
}

// Stats returns the fleet and everybody's jobs in numbers.
func (o *Operator) Stats(ctx context.Context) (view.Stats, error) {
	if !o.started.Load() {
		return view.Stats{}, config.ErrNotStarted
	}
	return o.insight.Stats(ctx, operator)
}

// Jobs returns a part of everybody's running and waiting jobs.
func (o *Operator) Jobs(ctx context.Context, p view.JobsPage) ([]view.JobView, error) {
	if !o.started.Load() {
		return nil, config.ErrNotStarted
	}
	return o.insight.Page(ctx, "", p, o.insight.WithoutAddresses(operator))
}

// JobsWithID returns the newest job with an id of every tenant, since several may choose the same,
// and the job with this key.
func (o *Operator) JobsWithID(ctx context.Context, id string) ([]view.JobView, error) {
	if !o.started.Load() {
		return nil, config.ErrNotStarted
	}
	jobs, err := o.insight.Queue.FindAnywhere(ctx, id)
	if err == nil {
		var keyed job.Job
		keyed, err = o.insight.Queue.FindOrGet(ctx, "", id)
		if err == nil && !slices.ContainsFunc(jobs, func(j job.Job) bool { return j.Key == keyed.Key }) {
			jobs = append(jobs, keyed)
		}
		if errors.Is(err, view.ErrNoJob) {
			err = nil
		}
	}
	views := make([]view.JobView, len(jobs))
	for n, j := range jobs {
		views[n] = o.insight.Whole(ctx, j, o.insight.WithoutAddresses(operator))
	}
	return views, err
}

// Cancel ends a tenant's newest job with an id, wherever it is, and reports whether there was one
// to end.
func (o *Operator) Cancel(ctx context.Context, tenant, id string) (bool, error) {
	if !o.started.Load() {
		return false, config.ErrNotStarted
	}
	return o.canceller.Cancel(ctx, tenant, id)
}

// operator sees everything.
var operator = view.Viewer{Trusted: true}

// Pause stops something from getting any more runs, at all hubs and until it is resumed; runs that
// have begun go on. The error is [fleet.ErrUnknown], or one of Redis.
func (o *Operator) Pause(ctx context.Context, s queue.Stop) error {
	if !o.started.Load() {
		return config.ErrNotStarted
	}
	if name, ok := s.Instance(); ok {
		if _, known := o.fleet.Instance(name); !known {
			return fleet.ErrUnknown
		}
	}
	_, err := o.stops.set(ctx, s, true)
	return err
}

// Drain pauses an instance, at all hubs and until it is resumed. A run that is still going on there
// after the deadline is interrupted, and its job waits again as if it had not been given out: it
// keeps its place and all its attempts. The errors are as for Pause.
func (o *Operator) Drain(ctx context.Context, instance string, deadline time.Duration) error {
	if !o.started.Load() {
		return config.ErrNotStarted
	}
	if _, known := o.fleet.Instance(instance); !known {
		return fleet.ErrUnknown
	}
	return o.stops.drain(ctx, instance, deadline)
}

// Resume undoes Pause and Drain. An instance that was set aside because its runs kept failing
// counts as healthy again at this hub, and at all hubs if it was paused or drained. The error is
// [fleet.ErrUnknown], or one of Redis.
func (o *Operator) Resume(ctx context.Context, s queue.Stop) error {
	if !o.started.Load() {
		return config.ErrNotStarted
	}
	changed, err := o.stops.set(ctx, s, false)
	if name, ok := s.Instance(); ok && err == nil && !changed {
		if _, known := o.fleet.Instance(name); !known {
			return fleet.ErrUnknown
		}
		o.stops.dispatch.Blame.Trust(name)
	}
	return err
}

// restartTimeout bounds how long an agent may take to confirm that it is restarting an instance.
const restartTimeout = 10 * time.Second

// Restart asks an instance's agent to restart its process. Whatever is running there runs elsewhere
// instead. The errors are [fleet.ErrUnknown] and [fleet.ErrNoRestart].
func (o *Operator) Restart(ctx context.Context, instance string) error {
	if !o.started.Load() {
		return config.ErrNotStarted
	}
	client := o.clients.ByName(instance)
	if client == nil {
		return fleet.ErrUnknown
	}
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	if err := client.Restart(ctx); err != nil {
		return fmt.Errorf("%w (%s)", fleet.ErrNoRestart, err) //nolint:errorlint // the cause is for people
	}
	return nil
}

// Errors of [Operator.ForgetAgent].
var (
	ErrAgentAlive   = errors.New("the agent is alive: stop it first, or give the other one another --name")
	ErrAgentUnknown = errors.New("no agent of that name is known")
)

// ForgetAgent lets an agent with another key have the name of one that is gone, for example because
// its machine was reinstalled. It also removes what the fleet knows about the old one. The errors
// are [ErrAgentAlive], [ErrAgentUnknown], or one of Redis.
func (o *Operator) ForgetAgent(ctx context.Context, name string) error {
	if !o.started.Load() {
		return config.ErrNotStarted
	}
	if o.fleet.Present(name) {
		return ErrAgentAlive
	}
	pinned, err := o.admission.forget(ctx, name)
	if err != nil {
		return err
	}
	o.pages.Forget(name)
	o.known.Forget(name)
	if known := o.fleet.ForgetAgent(name); !known && !pinned {
		return ErrAgentUnknown
	}
	return nil
}

// ForgetInstance removes an instance that is gone from this hub's list, where it would stay for a
// day, and undoes Pause and Drain for it at all hubs: a new instance of its name starts afresh. The
// errors are [fleet.ErrPresent], [fleet.ErrUnknown], or one of Redis.
func (o *Operator) ForgetInstance(ctx context.Context, name string) error {
	if !o.started.Load() {
		return config.ErrNotStarted
	}
	i, known := o.fleet.Instance(name)
	if known && (i.Agent == "" || o.fleet.Present(i.Agent) || !o.fleet.Forget(name)) {
		return fleet.ErrPresent
	}
	o.known.Forget(name)
	changed, err := o.stops.set(ctx, queue.StopInstance(name), false)
	if err == nil && !known && !changed {
		return fleet.ErrUnknown
	}
	return err
}

// IssueToken returns a token with which the named machine may open a tunnel; an older one is no
// longer valid. The error is [fleet.ErrName], [machines.ErrFull], or one of Redis.
func (o *Operator) IssueToken(ctx context.Context, machine string) (string, error) {
	if !o.started.Load() {
		return "", config.ErrNotStarted
	}
	if err := fleet.CheckName(machine); err != nil {
		return "", err
	}
	return o.machines.Issue(ctx, machine)
}

// RevokeToken makes a machine's token invalid, and reports whether it had one. Its tunnels are cut
// within half a minute.
func (o *Operator) RevokeToken(ctx context.Context, machine string) (bool, error) {
	if !o.started.Load() {
		return false, config.ErrNotStarted
	}
	o.known.Forget(machine)
	return o.machines.Revoke(ctx, machine)
}

// Machines returns those that have a token.
func (o *Operator) Machines(ctx context.Context) ([]machines.Machine, error) {
	if !o.started.Load() {
		return nil, config.ErrNotStarted
	}
	return o.machines.List(ctx)
}

// HubKey returns the key by which agents know the hubs, for their flag --hub-key.
func (o *Operator) HubKey() (string, error) {
	if !o.started.Load() {
		return "", config.ErrNotStarted
	}
	return o.authority.Key()
}

// Adoption says what [Operator.AdoptStorage] would do.
func (o *Operator) Adoption(ctx context.Context) (files.Adoption, error) {
	if !o.started.Load() {
		return files.Adoption{}, config.ErrNotStarted
	}
	return o.bond.Adoption(ctx)
}

// AdoptStorage ties the storage to the hubs' Redis, whatever either belonged to.
func (o *Operator) AdoptStorage(ctx context.Context) error {
	if !o.started.Load() {
		return config.ErrNotStarted
	}
	return o.bond.Adopt(ctx)
}

// RotateKeys makes a new key for links and API keys, for all hubs of the storage. It is used once
// every hub knows it; what older keys have made stays valid as long as it would have been.
func (o *Operator) RotateKeys(ctx context.Context) (keyring.Rotation, error) {
	if !o.started.Load() {
		return keyring.Rotation{}, config.ErrNotStarted
	}
	return o.ring.Rotate(ctx)
}
