package conversation

import (
	"context"
	"sync"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// guests remembers which chats are noted in the store for broadcasts.
type guests struct {
	store *state.Store

	mu  sync.Mutex
	met map[string]string // the last user of a chat, as noted
}

// meet notes a chat for broadcasts.
func (gs *guests) meet(ctx context.Context, e platform.Event) error {
	key := ChatKey(e.Platform, e.Chat)
	gs.mu.Lock()
	user, known := gs.met[key]
	gs.mu.Unlock()
	if known && user == e.User.ID {
		return nil
	}
	if err := gs.store.Chats.Meet(ctx, key, e.User.ID); err != nil {
		return err
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if len(gs.met) >= maxMet {
		clear(gs.met)
	}
	gs.met[key] = e.User.ID
	return nil
}

// renew lets every chat be noted again.
func (gs *guests) renew() {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	clear(gs.met)
}

// left forgets a chat that the bridge may no longer write to, until somebody writes there
// again.
func (gs *guests) left(ctx context.Context, key string) error {
	gs.mu.Lock()
	delete(gs.met, key)
	gs.mu.Unlock()
	return gs.store.Chats.Leave(ctx, key)
}
