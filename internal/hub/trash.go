package hub

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
)

// Trashed is a name in the trash.
type Trashed = files.Trashed

// The errors of [Operator.TakeBack].
var (
	ErrNotInTrash = files.ErrNotInTrash
	ErrTaken      = files.ErrTaken
)

// Trash returns the newest names in the trash of a tenant, or of all with "", and how many there
// are in all.
func (o *Operator) Trash(ctx context.Context, tenant string, most int) ([]Trashed, int, error) {
	if !o.started.Load() {
		return nil, 0, config.ErrNotStarted
	}
	return o.store.Trash(ctx, tenant, most)
}

// TakeBack gives a name in a tenant's trash back to its file. Errors: [ErrNotInTrash], [ErrTaken].
func (o *Operator) TakeBack(ctx context.Context, tenant, id string) (Trashed, error) {
	if !o.started.Load() {
		return Trashed{}, config.ErrNotStarted
	}
	return o.store.TakeBack(ctx, tenant, id)
}
