package endpoints

import (
	"context"
	"slices"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/overflow"
)

// tenantOf returns whose a job is.
func (s *Endpoints) tenantOf(ctx context.Context, key string) (string, error) {
	j, err := s.o.Queue.Get(ctx, key)
	return j.Tenant, err
}

// isOutput returns what knows whether nodes of a class are output nodes, by the endpoint's own
// classes or by the fleet's.
func (s *Endpoints) isOutput(e *openEndpoint) func(class string) bool {
	return func(class string) bool {
		if e.info != nil {
			return catalog.IsOutput(e.info, class)
		}
		for _, info := range s.o.Infos() {
			if catalog.IsOutput(info, class) {
				return true
			}
		}
		return false
	}
}

// Places implements [dispatch.Overflow].
func (s *Endpoints) Places() []dispatch.Place {
	all := s.open()
	list := make([]dispatch.Place, 0, len(all))
	for _, e := range all {
		p := dispatch.Place{Name: e.settings.Name, After: e.settings.After, Closed: e.Closed()}
		for n := range e.settings.Max {
			p.Slots = append(p.Slots, fleet.OverflowName(e.settings.Name, n+1))
		}
		list = append(list, p)
	}
	return list
}

// Has implements [dispatch.Overflow].
func (s *Endpoints) Has(key string) (place string, barred bool) { return s.book.Has(key) }

// Empty implements [dispatch.Overflow].
func (s *Endpoints) Empty() bool { return s.book.Empty() }

// Refuses implements [dispatch.Overflow].
func (s *Endpoints) Refuses(ctx context.Context, place string, j job.Job, needs catalog.Requirements) string {
	all := s.open()
	at := slices.IndexFunc(all, func(e *openEndpoint) bool { return e.settings.Name == place })
	if at < 0 {
		return "it is not configured any more"
	}
	e := all[at]
	switch {
	case !e.settings.Allows(needs.Classes):
		return "it is not for these node classes"
	case needs.Secrets && !e.settings.Secrets:
		return "the prompt needs an API key, which may not go there"
	}
	if lacks := s.lacks(e, needs); lacks != "" {
		return lacks
	}
	if e.settings.Inputs {
		return ""
	}
	body, err := s.o.Queue.Body(ctx, j.Key)
	switch {
	case err != nil:
		return "it cannot be read now"
	case len(body.Inputs) > 0:
		return "the prompt has input files, which may not go there"
	}
	return ""
}

// lacks says what an endpoint lacks for a job; empty if nothing. One that has not told what it can run
// is taken to run what the fleet can, or could within a day.
func (s *Endpoints) lacks(e *openEndpoint, needs catalog.Requirements) string {
	if e.info != nil {
		if lacks := e.info.WithSecrets(e.settings.Secrets).Satisfies(needs); len(lacks) > 0 {
			return "it lacks " + lacks[0]
		}
		return ""
	}
	for _, info := range s.o.Infos() {
		if len(info.WithSecrets(true).Satisfies(needs)) == 0 {
			return ""
		}
	}
	return "no server of the fleet has what it needs, and what the endpoint has is not known"
}

// Status returns how the endpoints are doing. The error is one of Redis.
func (s *Endpoints) Status(ctx context.Context) ([]overflow.Status, error) {
	all := s.open()
	list := make([]overflow.Status, 0, len(all))
	for _, e := range all {
		one, err := e.Status(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}
