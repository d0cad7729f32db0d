package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// harvest brings the output files of one run to the hub and knows the names
// that they have there.
type harvest struct {
	run *run

	mu    sync.Mutex
	names map[job.FileRef]job.FileRef
	waits []func(context.Context) error
	err   error
}

func newHarvest(r *run) *harvest {
	return &harvest{run: r, names: map[job.FileRef]job.FileRef{}}
}

// rename returns an output with the hub's names, and starts copying what it
// has not seen yet. A file that cannot be had makes the run lost, which
// settle reports. The error is queue.ErrUnavailable: no names can be given now, and
// the output must be renamed again later.
func (h *harvest) rename(ctx context.Context, output []byte) ([]byte, error) {
	if h.run.d.Shown != nil {
		h.run.d.Shown(h.run.job().Tenant, h.run.link.name, output)
	}
	if !comfyui.HasFiles(output) {
		return output, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var unknown []job.FileRef
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
	return comfyui.Rename(output, func(f job.FileRef) job.FileRef {
		if name, ok := h.names[f]; ok {
			return name
		}
		return f
	}), nil
}

func (h *harvest) collect(ctx context.Context, outputs []job.FileRef) error {
	r := h.run
	names, wait, err := r.d.Files.Collect(ctx, r.job().Tenant, outputs, r.d.target(r.link))
	if errors.Is(err, queue.ErrUnavailable) {
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
	indexes, members := h.run.d.Files.Uses(h.run.job().Tenant, names)
	return queue.Uses{Indexes: indexes, Members: members}
}
