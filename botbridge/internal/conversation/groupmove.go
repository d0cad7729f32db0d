package conversation

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

const (
	// leftKind holds the settings of groups that the bot has just left, as a group that
	// gets a new id may report that first. leftKeep is how long they are kept.
	leftKind = "group_left"
	leftKeep = 10 * time.Minute
)

// Moved carries a group's settings and requests over to its new id. It may run again, also
// after settings were changed in the new chat: those are kept.
func (t *Talk) Moved(ctx context.Context, platformName, from, to string) error {
	if from == "" || to == "" || from == to {
		return nil
	}
	if err := t.o.Runner.Moved(ctx, platformName, from, to); err != nil {
		return err
	}
	former := platformName + ":" + from
	if err := t.o.Store.Put(ctx, limits.FormerKind, platformName+":"+to, former, groupKeep); err != nil {
		return err
	}
	if err := t.groups.move(ctx, former, platformName+":"+to); err != nil {
		return err
	}
	old := ChatKey(platformName, platform.Chat{ID: from, Group: true})
	user, err := t.o.Store.Chats.Met(ctx, old)
	if err != nil || user == "" {
		return err
	}
	if err := t.o.Store.Chats.Meet(ctx, ChatKey(platformName, platform.Chat{ID: to, Group: true}), user); err != nil {
		return err
	}
	return t.guests.left(ctx, old)
}

// move copies the settings of a group to its new name. The old ones still serve
// what was said there and waits, and expire a year after their last use.
func (gr *groups) move(ctx context.Context, from, to string) error {
	if err := gr.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer gr.turn.Release(1)
	var g GroupSettings
	switch err := gr.store.Get(ctx, groupKind, to, &g); {
	case err == nil:
		return nil
	case !errors.Is(err, state.ErrNotFound):
		return err
	}
	for _, kind := range []string{leftKind, groupKind} {
		err := gr.store.Get(ctx, kind, from, &g)
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		g.Menu, g.Used, g.Counts = "", time.Now().UTC(), cmp.Or(g.Counts, from)
		return gr.store.Put(ctx, groupKind, to, g, groupKeep)
	}
	return nil
}
