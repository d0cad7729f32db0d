package hub

import (
	"context"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
)

// ListFiles returns the names of the tenant's files directly in the folder of a type, newest first.
// Where nobody logs in, inputs that are only on an instance follow: LoadImage offers them, and they
// can be viewed. The error is one of Redis.
func (h *Hub) ListFiles(ctx context.Context, tenant, typ string) ([]string, error) {
	entries, err := h.store.List(ctx, tenant, typ, "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Ref.Filename)
	}
	if typ == job.TypeInput && tenant == job.DefaultTenant && !h.logins.Lately() {
		for _, name := range h.inventory.inputs() {
			if !strings.ContainsRune(name, '/') && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}
