package instance

import (
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// knowledge is what is known of what an instance can do.
type knowledge struct {
	ask  *asking
	slot *slot
	// MaySecrets reports whether the instance gets API keys now.
	MaySecrets func() bool
	// APIOnly reports whether the instance takes only prompts whose work a paid service does.
	APIOnly func() bool

	mu      sync.Mutex
	info    *catalog.Info
	version comfyui.Version
	// flags are what the instance has announced on this socket; nil if nothing.
	flags comfyui.Flags
}

// setVersion notes the version of the process that answers on a new socket.
func (k *knowledge) setVersion(version comfyui.Version) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version = version
}

// Capability returns the instance's version.
func (k *knowledge) Capability() comfyui.Version {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.version
}

// takeFlags takes the instance's answer to the hub's feature_flags, of which there is one for each
// socket.
func (k *knowledge) takeFlags(f comfyui.Frame) bool {
	flags, ok := comfyui.ParseFlags(f)
	if !ok {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flags == nil {
		k.flags = flags
	}
	return true
}

// dropFlags forgets the flags: it may be another process next time.
func (k *knowledge) dropFlags() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flags = nil
}

// announces returns the instance's flags; nil if it has announced none.
func (k *knowledge) announces() comfyui.Flags {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flags
}

// SetInfo stores what the instance can run, see takeWhole and takePart.
func (k *knowledge) SetInfo(info *catalog.Info) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.info = info
	k.slot.enable(info != nil)
}

// Abilities returns what the instance can run, nil until that is known.
func (k *knowledge) Abilities() *catalog.Info {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.info = catalog.ForAPIOnly(k.info.WithSecrets(k.MaySecrets()), k.APIOnly())
	return k.info
}

// takeWhole stores a whole reading that began at began, together with anything said about single
// classes since then, and reports whether it brings anything new. A reading that a later one has
// overtaken is ignored.
func (k *knowledge) takeWhole(library *catalog.Library, info *catalog.Info, hash string, began time.Time) (changed bool) {
	q := k.ask
	q.mu.Lock()
	defer q.mu.Unlock()
	if began.Before(q.read) {
		return false
	}
	changed = q.hash != hash || len(q.patches) > 0
	q.read, q.took, q.hash = began, time.Since(began), hash
	clear(q.asked)
	for class, p := range q.patches {
		if p.at.Before(began) {
			delete(q.patches, class)
			continue
		}
		if patched, _, err := library.Patch(info, p.body); err == nil {
			info = patched
		}
	}
	if changed {
		k.SetInfo(info)
	}
	return changed
}

// takeRecalled stores what the instance said over an earlier link, perhaps to another hub.
// The first client that wants to know makes the hub ask again.
func (k *knowledge) takeRecalled(info *catalog.Info, hash string) {
	q := k.ask
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hash = hash
	k.SetInfo(info)
}

// takePart stores what the instance said about a class and reports whether that is new.
func (k *knowledge) takePart(library *catalog.Library, class string, body []byte, began time.Time) (changed bool, err error) {
	q := k.ask
	q.mu.Lock()
	defer q.mu.Unlock()
	if began.Before(q.read) {
		return false, nil
	}
	info, changed, err := library.Patch(k.Abilities(), body)
	if err != nil {
		return false, err
	}
	q.asked[class] = began
	if changed {
		q.patches[class] = patch{began, body}
		q.doubted = began // its other classes may list the same folder
		k.SetInfo(info)
	}
	return changed, nil
}
