package conversation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// GroupSettings are what the moderators of a group have chosen for it and its topics. They
// can only narrow what the configuration allows.
type GroupSettings struct {
	// Language is the bot's language there, "" for everybody's own.
	Language string `json:"language,omitempty"`
	// Usual is the command for plain words, "" for the configured one.
	Usual string `json:"usual,omitempty"`
	// Off are the commands that are turned off there.
	Off []string `json:"off,omitempty"`
	// Pictures and GPUSeconds are a member's limits there for a day (UTC), 0 for the bot's
	// own. The one in the unit of the bot's share applies.
	Pictures   int64 `json:"pictures_per_day,omitempty"`
	GPUSeconds int64 `json:"gpu_seconds_per_day,omitempty"`
	// Counts is the name that usage is counted under, "" for the group's own.
	Counts string `json:"counts,omitempty"`
	// Cover means that pictures are hidden behind a spoiler.
	Cover bool `json:"cover,omitempty"`
	// Menu is a digest of the command menu that the platform shows there, "" for the
	// default one; see groupMenus.
	Menu string `json:"menu,omitempty"`
	// Used is when they were last stored.
	Used time.Time `json:"used"`
}

const (
	// verbGroup is the verb of the buttons that change a group's settings.
	verbGroup = "gs"
	groupKind = "group"
	// groupKeep is how long the settings of a silent group are kept, and groupRenew how
	// often that is extended while they are in use.
	groupKeep  = 365 * 24 * time.Hour
	groupRenew = 30 * 24 * time.Hour
	// maxSwitches bounds the commands in the settings, as platforms limit the number of
	// buttons.
	maxSwitches = 40
)

func groupName(e platform.Event) string { return e.Platform + ":" + e.Chat.ID }

// groups keeps the settings of groups.
type groups struct {
	store    *state.Store
	commands *repertoire
	// turn belongs to whoever changes some.
	turn *semaphore.Weighted
}

// of returns the settings of an event's group, and extends their life from time
// to time.
func (gr *groups) of(ctx context.Context, e platform.Event) (GroupSettings, error) {
	var g GroupSettings
	if !e.Chat.Group {
		return g, nil
	}
	err := gr.store.Get(ctx, groupKind, groupName(e), &g)
	if errors.Is(err, state.ErrNotFound) {
		return GroupSettings{}, nil
	}
	if err == nil && time.Since(g.Used) > groupRenew {
		g, err = gr.change(ctx, e, func(*GroupSettings) {})
	}
	return g, err
}

// change changes the settings of a group. Two moderators may do so at the same time.
func (gr *groups) change(ctx context.Context, e platform.Event, change func(*GroupSettings)) (GroupSettings, error) {
	if err := gr.turn.Acquire(ctx, 1); err != nil {
		return GroupSettings{}, err
	}
	defer gr.turn.Release(1)
	var g GroupSettings
	if err := gr.store.Get(ctx, groupKind, groupName(e), &g); err != nil && !errors.Is(err, state.ErrNotFound) {
		return g, err
	}
	change(&g)
	g.Off = slices.DeleteFunc(g.Off, func(name string) bool { return gr.commands.byName[name] == nil })
	g.Used = time.Now().UTC()
	return g, gr.store.Put(ctx, groupKind, groupName(e), g, groupKeep)
}

// leave forgets the settings of a group that the bot has left. The digest of its menu
// stays, so that the menu is replaced when the bot comes back.
func (gr *groups) leave(ctx context.Context, e platform.Event) error {
	if !e.Chat.Group {
		return nil
	}
	if err := gr.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer gr.turn.Release(1)
	var g GroupSettings
	err := gr.store.Get(ctx, groupKind, groupName(e), &g)
	if err == nil {
		err = gr.store.Put(ctx, leftKind, groupName(e), g, leftKeep)
	}
	if err == nil && g.Menu != "" {
		return gr.store.Put(ctx, groupKind, groupName(e), GroupSettings{Menu: g.Menu, Used: time.Now().UTC()}, groupKeep)
	} else if err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	return gr.store.Put(ctx, groupKind, groupName(e), nil, 0)
}

// usual returns the command for plain words in the chat of a turn, nil for none.
func (rep *repertoire) usual(tn *turn) *workflow.Command {
	if c := rep.byName[tn.group.Usual]; c != nil {
		return c
	}
	return rep.byName[rep.plain]
}

// groupData returns the data of a button. It names the user whose /settings message it is
// under; see noteButtons.
func groupData(user, key, value string) string {
	return strings.Join([]string{verbGroup, user, key, value}, ":")
}

// nextUsual returns the next choice for plain words after the current command, "" if there
// is none.
func (rep *repertoire) nextUsual(tn *turn) string {
	now := rep.usual(tn)
	if now == nil {
		return ""
	}
	at := slices.Index(rep.list, now)
	for i := range rep.list {
		c := rep.list[(at+1+i)%len(rep.list)]
		if c != now && c.Takes(workflow.Prompt) && !slices.Contains(tn.group.Off, c.Name) {
			return c.Name
		}
	}
	return ""
}
