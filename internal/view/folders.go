package view

import (
	"context"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/classes"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/tenants"
)

// Folders are the files that a tenant may use as inputs and outputs, by folder.
type Folders struct {
	Store interface {
		List(ctx context.Context, tenant, typ, subfolder string) ([]files.Entry, error)
	}
	// Placed knows what hubs have put on instances.
	Placed    files.Placed
	Inventory *classes.Inventory
	Logins    *tenants.Logins
	Clients   *comfyui.Clients
	Fleet     *fleet.Registry
}

// List returns the names of the tenant's files directly in the folder of a type, newest first.
// Where nobody logs in, inputs that are only on an instance follow: LoadImage offers them, and they
// can be viewed. The error is one of Redis.
func (f *Folders) List(ctx context.Context, tenant, typ string) ([]string, error) {
	entries, err := f.Store.List(ctx, tenant, typ, "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Ref.Filename)
	}
	if typ == job.TypeInput && tenant == job.DefaultTenant && !f.Logins.Lately() {
		for _, name := range f.Inventory.Inputs() {
			if !strings.ContainsRune(name, '/') && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// OfInstance finds an input that is on an instance and not at the hub: the web interface shows
// whatever /object_info offers. It does so only where nobody has logged in, and for nothing that a
// hub may have put there, since that belongs to somebody.
func (f *Folders) OfInstance(ctx context.Context, tenant string, ref job.FileRef) (files.Source, bool) {
	if ref.Type != job.TypeInput || tenant != job.DefaultTenant {
		return files.Source{}, false
	}
	for _, name := range f.Inventory.Offering(ref.Value(false)) {
		client := f.Clients.ByName(name)
		if client == nil {
			continue
		}
		if put, err := f.Placed.Remembers(ctx, name, ref); put || err != nil {
			continue
		}
		info, found, err := client.Stat(ctx, ref)
		if err != nil || !found {
			continue
		}
		i, _ := f.Fleet.Instance(name)
		return files.Source{
			Instance: name, Type: ref.Type, Subfolder: ref.Subfolder, Filename: ref.Filename, ETag: info.ETag, Boot: i.BootID(),
		}, true
	}
	return files.Source{}, false
}
