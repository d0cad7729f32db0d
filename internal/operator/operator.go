// Package operator does what whoever runs the hub commands.
package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/lastknown"
	"github.com/comfyhub/comfyhub/internal/machines"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/roster"
	"github.com/comfyhub/comfyhub/internal/view"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

// Operator is what whoever runs the hub may do and see.
type Operator struct {
	Fleet     *fleet.Registry
	Clients   *comfyui.Clients
	Settings  func() *config.Settings
	Stops     *Stops
	Insight   *view.Insight
	Pages     *origin.PageSource
	LastKnown *lastknown.Answers
	Memory    *roster.Memory
	Machines  *machines.Machines
	// Names are whose the names of agents are.
	Names interface {
		Forget(ctx context.Context, agent string) (known bool, err error)
	}
}

// Instances returns the whole fleet, with the addresses of all instances and the ids of all
// prompts.
func (o *Operator) Instances() []fleet.Instance {
	return o.Settings().WithReserved(o.Fleet.Instances())
}

// Stats returns the fleet and everybody's jobs in numbers.
func (o *Operator) Stats(ctx context.Context) (view.Stats, error) {
	return o.Insight.Stats(ctx, operator)
}

// Jobs returns a part of everybody's running and waiting jobs.
func (o *Operator) Jobs(ctx context.Context, p view.JobsPage) ([]view.JobView, error) {
	return o.Insight.Page(ctx, "", p, o.Insight.WithoutAddresses(operator))
}

// JobsWithID returns the newest job with an id of every tenant, since several may choose the same,
// and the job with this key.
func (o *Operator) JobsWithID(ctx context.Context, id string) ([]view.JobView, error) {
	jobs, err := o.Insight.Queue.FindAnywhere(ctx, id)
	if err == nil {
		var keyed job.Job
		keyed, err = o.Insight.Queue.FindOrGet(ctx, "", id)
		if err == nil && !slices.ContainsFunc(jobs, func(j job.Job) bool { return j.Key == keyed.Key }) {
			jobs = append(jobs, keyed)
		}
		if errors.Is(err, view.ErrNoJob) {
			err = nil
		}
	}
	views := make([]view.JobView, len(jobs))
	for n, j := range jobs {
		views[n] = o.Insight.Whole(ctx, j, o.Insight.WithoutAddresses(operator))
	}
	return views, err
}

// operator sees everything.
var operator = view.Viewer{Trusted: true}

// Pause stops something from getting any more runs, at all hubs and until it is resumed; runs that
// have begun go on. The error is [fleet.ErrUnknown], or one of Redis.
func (o *Operator) Pause(ctx context.Context, s queue.Stop) error {
	if name, ok := s.Instance(); ok {
		if _, known := o.Fleet.Instance(name); !known {
			return fleet.ErrUnknown
		}
	}
	_, err := o.Stops.set(ctx, s, true)
	return err
}

// Drain pauses an instance, at all hubs and until it is resumed. A run that is still going on there
// after the deadline is interrupted, and its job waits again as if it had not been given out: it
// keeps its place and all its attempts. The errors are as for Pause.
func (o *Operator) Drain(ctx context.Context, instance string, deadline time.Duration) error {
	if _, known := o.Fleet.Instance(instance); !known {
		return fleet.ErrUnknown
	}
	return o.Stops.drain(ctx, instance, deadline)
}

// Resume undoes Pause and Drain. An instance that was set aside because its runs kept failing
// counts as healthy again at this hub, and at all hubs if it was paused or drained. The error is
// [fleet.ErrUnknown], or one of Redis.
func (o *Operator) Resume(ctx context.Context, s queue.Stop) error {
	changed, err := o.Stops.set(ctx, s, false)
	if name, ok := s.Instance(); ok && err == nil && !changed {
		if _, known := o.Fleet.Instance(name); !known {
			return fleet.ErrUnknown
		}
		o.Stops.dispatch.Blame.Trust(name)
	}
	return err
}

// restartTimeout bounds how long an agent may take to confirm that it is restarting an instance.
const restartTimeout = 10 * time.Second

// Restart asks an instance's agent to restart its process. Whatever is running there runs elsewhere
// instead. The errors are [fleet.ErrUnknown] and [fleet.ErrNoRestart].
func (o *Operator) Restart(ctx context.Context, instance string) error {
	client := o.Clients.ByName(instance)
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
	if o.Fleet.Present(name) {
		return ErrAgentAlive
	}
	pinned, err := o.Names.Forget(ctx, name)
	if err != nil {
		return err
	}
	o.Pages.Forget(name)
	o.LastKnown.Forget(name)
	if known := o.Fleet.ForgetAgent(name); !known && !pinned {
		return ErrAgentUnknown
	}
	return nil
}

// Release is ForgetAgent for a machine that was ended on purpose. It reports whether it was gone.
func (o *Operator) Release(ctx context.Context, machine string) (gone bool, err error) {
	switch err = o.ForgetAgent(ctx, machine); {
	case errors.Is(err, ErrAgentAlive):
		return false, nil
	case errors.Is(err, ErrAgentUnknown):
		return true, nil
	}
	return err == nil, err
}

// ForgetInstance removes an instance that is gone from this hub's list, where it would stay for
// days, and undoes Pause and Drain for it at all hubs: a new instance of its name starts afresh. The
// errors are [fleet.ErrPresent], [fleet.ErrUnknown], or one of Redis.
func (o *Operator) ForgetInstance(ctx context.Context, name string) error {
	i, known := o.Fleet.Instance(name)
	if known && (i.Agent == "" || o.Fleet.Present(i.Agent) || !o.Fleet.Forget(name)) {
		return fleet.ErrPresent
	}
	o.LastKnown.Forget(name)
	if err := o.Memory.Forget(ctx, name); err != nil {
		return err
	}
	changed, err := o.Stops.set(ctx, queue.StopInstance(name), false)
	if err == nil && !known && !changed {
		return fleet.ErrUnknown
	}
	return err
}

// IssueToken returns a token with which the named machine may open a tunnel; an older one is no
// longer valid. The error is [fleet.ErrName], [machines.ErrFull], or one of Redis.
func (o *Operator) IssueToken(ctx context.Context, machine string) (string, error) {
	if err := fleet.CheckName(machine); err != nil {
		return "", err
	}
	return o.Machines.Issue(ctx, machine)
}

// RevokeToken makes a machine's token invalid, and reports whether it had one. Its tunnels are cut
// within half a minute.
func (o *Operator) RevokeToken(ctx context.Context, machine string) (bool, error) {
	o.LastKnown.Forget(machine)
	return o.Machines.Revoke(ctx, machine)
}
