package hub

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// lookup knows which of a tenant's files the hub has, for the duration of one request.
type lookup struct {
	store  *files.Store
	ctx    context.Context
	tenant string
	known  map[job.FileRef]bool
	// err is set if Redis was away: what has returns is then worth nothing.
	err error
}

// has implements the Known function of package catalog.
func (l *lookup) has(ref job.FileRef) bool {
	if known, ok := l.known[ref]; ok {
		return known
	}
	_, err := l.store.Resolve(l.ctx, l.tenant, ref)
	if l.known == nil {
		l.known = map[job.FileRef]bool{}
	}
	l.known[ref] = err == nil
	if errors.Is(err, redis.ErrUnavailable) {
		l.err = err
	}
	return err == nil
}

// pin notes what the files in a graph mean now.
func (s *Submitter) pin(ctx context.Context, tenant string, graph *catalog.Graph, named []catalog.InputFile) ([]byte, error) {
	in := files.Inputs{Version: 1, Held: heldIn(ctx, s.held, tenant, graph)}
	refs := make([]job.FileRef, 0, len(named))
	for _, f := range named {
		refs = append(refs, f.Ref)
		in.Places = append(in.Places, files.InputPlace{Path: f.Path, Value: f.Value, Ref: f.Ref})
	}
	pins, err := s.store.Pin(ctx, tenant, refs)
	if err != nil || len(pins) == 0 && len(in.Held) == 0 {
		return nil, err
	}
	if in.Pins, err = pins.Encode(); err != nil {
		return nil, err
	}
	return json.Marshal(in)
}
