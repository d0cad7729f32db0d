package instance

import (
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// maxBackground bounds the message types that a connection knows as background.
const maxBackground = 64

// background knows the types of messages that an instance's custom nodes send whether or not it is
// running a prompt, such as the load of its GPU. They say nothing about a run. The zero value knows
// none.
type background struct {
	mu    sync.Mutex
	types map[string]bool
}

// note takes a message that came while the instance had no run of this hub. It counts only if the
// instance has no other work either.
func (b *background) note(f comfyui.Frame, idle func() bool) {
	if f.Binary {
		return
	}
	m, ok := comfyui.ParseMessage(f.Data)
	if !ok || !m.IsCustom() || m.PromptID != "" || !idle() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.types == nil {
		b.types = map[string]bool{}
	}
	if len(b.types) < maxBackground {
		b.types[m.Type] = true
	}
}

// Has reports whether a message is background.
func (b *background) Has(m comfyui.Message) bool {
	if !m.IsCustom() || m.PromptID != "" {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.types[m.Type]
}
