package classes

import (
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Resolver finds a tenant's file by its name.
type Resolver interface {
	Resolve(ctx context.Context, tenant string, ref job.FileRef) (files.Entry, error)
}

// Lookup knows which of a tenant's files the hub has, for the duration of one request.
type Lookup struct {
	Store  Resolver
	Ctx    context.Context
	Tenant string
	Known  map[job.FileRef]bool
	// Err is set if Redis was away: what has returns is then worth nothing.
	Err error
}

// Has implements the Known function of package catalog.
func (l *Lookup) Has(ref job.FileRef) bool {
	if known, ok := l.Known[ref]; ok {
		return known
	}
	_, err := l.Store.Resolve(l.Ctx, l.Tenant, ref)
	if l.Known == nil {
		l.Known = map[job.FileRef]bool{}
	}
	l.Known[ref] = err == nil
	if errors.Is(err, redis.ErrUnavailable) {
		l.Err = err
	}
	return err == nil
}
