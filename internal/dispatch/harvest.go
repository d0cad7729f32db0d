package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// Files is what dispatch needs of the files of the fleet.
type Files interface {
	// Push puts the pinned inputs of a job on an instance and returns the
	// graph that the instance must be given: the same bytes, but for the
	// literals of inputs that had to take another name there.
	Push(ctx context.Context, tenant string, pins, graph []byte, instance string, to *comfyui.Client) ([]byte, error)
	// Collect gives outputs of one message of an instance their names at the
	// hub, in order and the same ones each time, and begins to copy them. The
	// names are durable when Collect returns; wait returns once the bytes are
	// too.
	Collect(ctx context.Context, tenant string, outputs []comfyui.FileRef, instance string, from *comfyui.Client) (names []comfyui.FileRef, wait func(context.Context) error, err error)
	// Shown hears each output of a job as the instance wrote it.
	Shown(tenant, instance string, output []byte)
	// Uses tells how the end of a job that names files is noted as their last
	// use.
	Uses(tenant string, names []comfyui.FileRef) queue.Uses
}

// harvest brings the output files of one run to the hub and knows the names
// that they have there.
type harvest struct {
	run *run

	mu    sync.Mutex
	names map[comfyui.FileRef]comfyui.FileRef
	waits []func(context.Context) error
	err   error
}

func newHarvest(r *run) *harvest {
	return &harvest{run: r, names: map[comfyui.FileRef]comfyui.FileRef{}}
}

// rename returns an output with the hub's names, and starts copying what it
// has not seen yet. A file that cannot be had makes the run lost, which
// settle reports. The error is queue.ErrAway: no names can be given now, and
// the output must be renamed again later.
func (h *harvest) rename(ctx context.Context, output []byte) ([]byte, error) {
	h.run.d.files.Shown(h.run.job().Tenant, h.run.link.name, output)
	if !comfyui.HasFiles(output) {
		return output, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var unknown []comfyui.FileRef
	for _, f := range comfyui.Files(output) {
		if _, ok := h.names[f.Ref]; !ok && !slices.Contains(unknown, f.Ref) {
			unknown = append(unknown, f.Ref)
		}
	}
	if len(unknown) > 0 {
		if err := h.collect(ctx, unknown); err != nil {
			return nil, err
		}
	}
	return comfyui.Rename(output, func(f comfyui.FileRef) comfyui.FileRef {
		if name, ok := h.names[f]; ok {
			return name
		}
		return f
	}), nil
}

func (h *harvest) collect(ctx context.Context, outputs []comfyui.FileRef) error {
	r := h.run
	names, wait, err := r.d.files.Collect(ctx, r.job().Tenant, outputs, r.link.name, r.link.client)
	if errors.Is(err, queue.ErrAway) {
		return err
	}
	if err != nil {
		r.log.Warn("cannot collect an output", "error", err)
		if h.err == nil {
			h.err = fmt.Errorf("an output file cannot be copied: %w", err)
		}
		return nil
	}
	for n, f := range outputs {
		h.names[f] = names[n]
	}
	h.waits = append(h.waits, wait)
	return nil
}

// settle waits until every file is at the hub.
func (h *harvest) settle(ctx context.Context) error {
	h.mu.Lock()
	waits, err := h.waits, h.err
	h.mu.Unlock()
	if err != nil {
		return err
	}
	for _, wait := range waits {
		if err := wait(ctx); err != nil {
			return fmt.Errorf("an output file cannot be copied: %w", err)
		}
	}
	return nil
}

// uses are the files of the run, by the names that its history entry has.
func (h *harvest) uses() queue.Uses {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := slices.Collect(maps.Values(h.names))
	if len(names) == 0 {
		return queue.Uses{}
	}
	return h.run.d.files.Uses(h.run.job().Tenant, names)
}
