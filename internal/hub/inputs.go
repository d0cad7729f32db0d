package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// inputs are the files that a job's graph names, as kept in job.Body.Inputs:
// what they meant at acceptance, and where in the graph they stand.
type inputs struct {
	Version int             `json:"v"`
	Pins    json.RawMessage `json:"pins"`
	Places  []inputPlace    `json:"places"`
	// Held are the ids of the held pictures that the graph names.
	Held []string `json:"held,omitempty"`
}

// inputPlace is one literal of the graph that names a file.
type inputPlace struct {
	Path  catalog.Path `json:"path"`
	Value string       `json:"value"`
	Ref   files.Ref    `json:"ref"`
}

// lookup says which of a tenant's files the hub has, for the time of one
// request.
type lookup struct {
	hub    *Hub
	ctx    context.Context
	tenant string
	known  map[catalog.FileRef]bool
	// err is set when Redis was away: what has says then is worth nothing.
	err error
}

// has implements the Known function of package catalog.
func (l *lookup) has(ref catalog.FileRef) bool {
	if known, ok := l.known[ref]; ok {
		return known
	}
	_, err := l.hub.store.Resolve(l.ctx, l.tenant, files.Ref(ref))
	if l.known == nil {
		l.known = map[catalog.FileRef]bool{}
	}
	l.known[ref] = err == nil
	if errors.Is(err, redis.ErrAway) {
		l.err = err
	}
	return err == nil
}

// pin notes what the files in a graph mean now.
func (h *Hub) pin(ctx context.Context, tenant string, graph *catalog.Graph, named []catalog.InputFile) ([]byte, error) {
	in := inputs{Version: 1, Held: h.held.in(ctx, tenant, graph)}
	refs := make([]files.Ref, 0, len(named))
	for _, f := range named {
		refs = append(refs, files.Ref(f.Ref))
		in.Places = append(in.Places, inputPlace{Path: f.Path, Value: f.Value, Ref: files.Ref(f.Ref)})
	}
	pins, err := h.store.Pin(ctx, tenant, refs)
	if err != nil || len(pins) == 0 && len(in.Held) == 0 {
		return nil, err
	}
	if in.Pins, err = pins.Encode(); err != nil {
		return nil, err
	}
	return json.Marshal(in)
}

// transport is the Hub as package dispatch needs it to move files.
type transport Hub

// Push implements dispatch.Files.
func (t *transport) Push(ctx context.Context, tenant string, encoded, graph []byte, instance string, to *comfyui.Client) ([]byte, error) {
	if len(encoded) == 0 {
		return graph, nil
	}
	var in inputs
	if err := json.Unmarshal(encoded, &in); err != nil {
		return nil, fmt.Errorf("hub: inputs of a job: %w", err)
	}
	for _, id := range in.Held {
		if err := t.held.push(ctx, tenant, id, to); err != nil {
			return nil, err
		}
	}
	pins, err := files.DecodePins(in.Pins)
	if err != nil || len(pins) == 0 {
		return graph, err
	}
	pusher := files.NewPusher(t.store, t.copies, files.PushOptions{Apart: tenant != job.DefaultTenant})
	rewrites, err := pusher.Push(ctx, tenant, pins, files.Target{Name: instance, Boot: (*Hub)(t).bootOf(instance), Instance: onInstance{to}})
	if err != nil {
		return nil, err
	}
	var edits []catalog.Edit
	for _, rw := range rewrites {
		for _, place := range in.Places {
			if place.Ref == rw.From {
				edits = append(edits, catalog.InputFile{Path: place.Path}.Rename(rw.Literal(place.Value)))
			}
		}
	}
	return catalog.Splice(graph, edits)
}

// Collect implements dispatch.Files.
func (t *transport) Collect(ctx context.Context, tenant string, outputs []comfyui.FileRef, instance string, from *comfyui.Client) ([]comfyui.FileRef, func(context.Context) error, error) {
	return (*Hub)(t).collect(ctx, tenant, outputs, instance, from)
}

// Uses implements dispatch.Files.
func (t *transport) Uses(tenant string, names []comfyui.FileRef) queue.Uses {
	refs := make([]files.Ref, len(names))
	for n, name := range names {
		refs[n] = files.Ref(name)
	}
	indexes, members := t.store.Uses(tenant, refs)
	return queue.Uses{Indexes: indexes, Members: members}
}
