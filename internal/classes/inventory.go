package classes

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/roster"
)

// rememberAbilities is how long the node classes of an instance that left stay known: its jobs wait
// for it instead of being refused.
const rememberAbilities = 24 * time.Hour

// Inventory is what each instance can run, and the catalog made from it. Requests do not wait for
// merging: they read the last catalog.
type Inventory struct {
	merged atomic.Pointer[catalog.Catalog]

	mu    sync.Mutex
	items map[string]*item
	// since is when something first became known.
	since time.Time
}

// item is what one instance has.
type item struct {
	info    *catalog.Info
	version comfyui.Version
	// left is when the instance was last seen; zero while it is there.
	left time.Time
}

// NewInventory knows of no instance yet.
func NewInventory() *Inventory {
	return &Inventory{items: map[string]*item{}}
}

// Learned records what an instance can run.
func (v *Inventory) Learned(instance string, info *catalog.Info, version comfyui.Version) {
	v.mu.Lock()
	v.items[instance] = &item{info: info.WithSecrets(false), version: version} // who may have API keys changes
	v.mu.Unlock()
	// At once: a job that the instance can run must not be refused after the instance has been
	// seen.
	v.merge()
}

// Recalled takes in what is stored about instances that this hub does not have now.
func (v *Inventory) Recalled(known map[string]roster.Instance) {
	changed := false
	v.mu.Lock()
	for name, i := range known {
		if i.Info == nil || time.Since(i.Seen) > rememberAbilities {
			continue
		}
		s := v.items[name]
		switch {
		case s == nil || !s.left.IsZero() && s.info.Hash() != i.Info.Hash():
			v.items[name] = &item{info: i.Info, version: i.Version, left: i.Seen}
			changed = true
		case !s.left.IsZero() && s.left.Before(i.Seen):
			s.left = i.Seen
		}
	}
	v.mu.Unlock()
	if changed {
		v.merge()
	}
}

// present notes which of the named instances are there now.
func (v *Inventory) present(names []string, there func(string) bool) {
	now := time.Now()
	changed := false
	v.mu.Lock()
	for _, name := range names {
		s := v.items[name]
		if s == nil {
			continue
		}
		is := there(name)
		switch {
		case is && !s.left.IsZero():
			s.left, changed = time.Time{}, true
		case !is && s.left.IsZero():
			s.left, changed = now, true
		case !s.left.IsZero() && now.Sub(s.left) > rememberAbilities:
			delete(v.items, name)
			changed = true
		}
	}
	v.mu.Unlock()
	if changed {
		v.merge()
	}
}

// merge rebuilds the catalog.
func (v *Inventory) merge() {
	v.mu.Lock()
	defer v.mu.Unlock()
	names := make([]string, 0, len(v.items))
	for name := range v.items {
		names = append(names, name)
	}
	// The newest ComfyUI first: it decides between equals.
	slices.SortFunc(names, func(a, b string) int {
		if c := v.items[b].version.Compare(v.items[a].version); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	sources := make([]catalog.Source, len(names))
	for n, name := range names {
		sources[n] = catalog.Source{Info: v.items[name].info, Absent: !v.items[name].left.IsZero()}
	}
	if len(names) > 0 && v.since.IsZero() {
		v.since = time.Now()
	}
	v.merged.Store(catalog.Merge(v.merged.Load(), sources))
}

// knownSince is when something first became known of an instance.
func (v *Inventory) knownSince() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.since
}

// version is the lowest among the instances of which anything is known.
func (v *Inventory) version() (lowest comfyui.Version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	first := true
	for _, s := range v.items {
		if first || s.version.Compare(lowest) < 0 {
			lowest, first = s.version, false
		}
	}
	return lowest
}

// loaders are the core nodes that offer the files of the input folder.
var loaders = [...][2]string{{"LoadImage", "image"}, {"LoadAudio", "audio"}, {"LoadVideo", "file"}}

// Offering returns the present instances that offer an input file, by name.
func (v *Inventory) Offering(file string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var names []string
	for name, s := range v.items {
		offers := func(loader [2]string) bool {
			_, ok := s.info.Spelling(loader[0], loader[1], file)
			return ok
		}
		if s.left.IsZero() && slices.ContainsFunc(loaders[:], offers) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Inputs returns the files in the input folders of the present instances, as far as the loaders
// offer them, by name.
func (v *Inventory) Inputs() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var names []string
	for _, s := range v.items {
		if !s.left.IsZero() {
			continue
		}
		for _, loader := range loaders {
			names = append(names, s.info.Choices(loader[0], loader[1])...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Catalog returns what the fleet can run; nil while nothing is known.
func (v *Inventory) Catalog() *catalog.Catalog { return v.merged.Load() }

// lookAtAll is how often an inventory looks at all instances. Nothing tells it when an instance is
// no longer reported.
const lookAtAll = 10 * time.Second

// Follow keeps track of who is there until the context ends.
func (v *Inventory) Follow(ctx context.Context, registry *fleet.Registry) {
	changes := registry.Subscribe()
	defer changes.Close()
	tick := time.NewTicker(lookAtAll)
	defer tick.Stop()
	there := func(name string) bool {
		i, known := registry.Instance(name)
		return known && i.State != fleet.Offline
	}
	for {
		select {
		case <-changes.Ready():
			v.present(changes.Take(), there)
		case <-tick.C:
			v.present(v.names(), there)
		case <-ctx.Done():
			return
		}
	}
}

// names returns the instances about which anything is known.
func (v *Inventory) names() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Keys(v.items))
}

// Infos returns what each instance can run, including those that left recently.
func (v *Inventory) Infos() map[string]*catalog.Info {
	v.mu.Lock()
	defer v.mu.Unlock()
	infos := make(map[string]*catalog.Info, len(v.items))
	for name, s := range v.items {
		infos[name] = s.info
	}
	return infos
}
