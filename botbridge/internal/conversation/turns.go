package conversation

import (
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// turns begins a turn for each event.
type turns struct {
	store    *state.Store
	platform func(name string) platform.Platform
	voice    *voice
	groups   *groups
}

// of returns the turn of an event.
func (ts *turns) of(ctx context.Context, e platform.Event) (*turn, error) {
	tn := &turn{Event: e, voice: ts.voice, p: ts.platform(e.Platform)}
	var err error
	if tn.settings, err = ts.settingsOf(ctx, tn.who()); err != nil {
		return nil, err
	}
	if tn.group, err = ts.groups.of(ctx, e); err != nil {
		return nil, err
	}
	tn.speak()
	return tn, nil
}

func (ts *turns) settingsOf(ctx context.Context, who string) (Settings, error) {
	var s Settings
	err := ts.store.Get(ctx, settingsKind, who, &s)
	if errors.Is(err, state.ErrNotFound) {
		err = nil
	}
	return s, err
}
