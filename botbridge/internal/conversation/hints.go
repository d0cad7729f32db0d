package conversation

import (
	"sync"
	"time"
)

// hints sees to it that a chat does not get one hint after another.
type hints struct {
	mu     sync.Mutex
	hinted map[string]time.Time // by chat
}

// may reports whether a chat has gone without a hint for a while, and notes that it
// gets one now.
func (h *hints) may(tn *turn) bool {
	const pause = 30 * time.Second
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for chat, last := range h.hinted {
		if now.Sub(last) > pause {
			delete(h.hinted, chat)
		}
	}
	key := tn.Platform + ":" + tn.Chat.ID
	if _, hinted := h.hinted[key]; hinted {
		return false
	}
	h.hinted[key] = now
	return true
}
