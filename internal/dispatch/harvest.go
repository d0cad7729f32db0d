package dispatch

import (
	"context"
	"fmt"
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// Files is what dispatch needs of the files of the fleet.
type Files interface {
	// Push puts the pinned inputs of a job on an instance and returns the
	// graph that the instance must be given: the same bytes, but for the
	// literals of inputs that had to take another name there.
	Push(ctx context.Context, tenant string, pins, graph []byte, instance string, to *comfyui.Client) ([]byte, error)
	// Collect gives an output of an instance its name at the hub, the same
	// one each time, and begins to copy it. The name is durable when Collect
	// returns; wait returns once the bytes are too.
	Collect(ctx context.Context, tenant string, file comfyui.FileRef, instance string, from *comfyui.Client) (name comfyui.FileRef, wait func(context.Context) error, err error)
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
// settle reports.
func (h *harvest) rename(ctx context.Context, output []byte) []byte {
	if !comfyui.HasFiles(output) {
		return output
	}
	return comfyui.Rename(output, func(f comfyui.FileRef) comfyui.FileRef { return h.name(ctx, f) })
}

func (h *harvest) name(ctx context.Context, f comfyui.FileRef) comfyui.FileRef {
	h.mu.Lock()
	defer h.mu.Unlock()
	if name, ok := h.names[f]; ok {
		return name
	}
	name, wait, err := h.run.d.files.Collect(ctx, h.run.job.Tenant, f, h.run.link.name, h.run.link.client)
	if err != nil {
		h.run.log.Warn("cannot collect an output", "error", err)
		if h.err == nil {
			h.err = fmt.Errorf("an output file cannot be copied: %w", err)
		}
		return f
	}
	h.names[f] = name
	h.waits = append(h.waits, wait)
	return name
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
