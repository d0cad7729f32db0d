package hub

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/metrics"
)

// Trashed is a name in the trash.
type Trashed = files.Trashed

// The errors of [Operator.TakeBack].
var (
	ErrNotInTrash = files.ErrNotInTrash
	ErrTaken      = files.ErrTaken
)

// storageIsFull reports whether the storage has no room for the trash.
func (h *Hub) storageIsFull() bool {
	return errors.Is(h.storage.Health().Err(), syscall.ENOSPC) || slices.ContainsFunc(h.disks, func(d *metrics.Disk) bool {
		free, size, ok := d.Space()
		return ok && d.Folder() == "storage" && float64(free) < scarceDisk*float64(size)
	})
}

// Trash returns the newest names in the trash of a tenant, or of all with "", and how many there
// are in all.
func (o *Operator) Trash(ctx context.Context, tenant string, most int) ([]Trashed, int, error) {
	if !o.started.Load() {
		return nil, 0, ErrNotStarted
	}
	return o.store.Trash(ctx, tenant, most)
}

// TakeBack gives a name in a tenant's trash back to its file. Errors: [ErrNotInTrash], [ErrTaken].
func (o *Operator) TakeBack(ctx context.Context, tenant, id string) (Trashed, error) {
	if !o.started.Load() {
		return Trashed{}, ErrNotStarted
	}
	return o.store.TakeBack(ctx, tenant, id)
}
