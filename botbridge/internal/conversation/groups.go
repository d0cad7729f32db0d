package conversation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
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

// groups keeps the settings of groups. Its mutex is held while they change.
type groups struct {
	store    *state.Store
	commands *repertoire

	mu sync.Mutex
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
	gr.mu.Lock()
	defer gr.mu.Unlock()
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
	gr.mu.Lock()
	defer gr.mu.Unlock()
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

// groupPanel shows moderators the settings of their group and changes them.
type groupPanel struct {
	guard    *limits.Guard
	texts    *locale.Bundle
	commands *repertoire
	groups   *groups
}

// button leads from a user's settings to the group's; nil on platforms that do not
// tell who moderates.
func (gp *groupPanel) button(tn *turn) []platform.Button {
	if _, ok := tn.p.(platform.Moderated); !ok || !tn.Chat.Group {
		return nil
	}
	return []platform.Button{{Label: tn.say("group_button", nil), Data: groupData(tn.User.ID, "menu", "-")}}
}

// groupData returns the data of a button. It names the user whose /settings message it is
// under; see noteButtons.
func groupData(user, key, value string) string {
	return strings.Join([]string{verbGroup, user, key, value}, ":")
}

// post returns the group settings for moderators, in the message with a user's
// settings.
func (gp *groupPanel) post(tn *turn, user string) platform.Post {
	post := platform.Post{Text: tn.say("group_settings", nil)}
	button := func(on bool, label, key, value string) platform.Button {
		if on {
			label = "✓ " + label
		}
		return platform.Button{Label: label, Data: groupData(user, key, value)}
	}
	g := tn.group
	row := []platform.Button{button(g.Language == "", tn.say("group_any_language", nil), "lang", "-")}
	for _, language := range gp.texts.Languages() {
		row = append(row, button(g.Language == language, gp.texts.Say(language, "language", nil), "lang", language))
	}
	post.Buttons = append(post.Buttons, row)
	if next := gp.commands.nextUsual(tn); next != "" {
		label := tn.say("group_usual", locale.With{"command": gp.commands.usual(tn).Name})
		post.Buttons = append(post.Buttons, []platform.Button{button(false, label, "usual", next)})
	}
	post.Buttons = append(post.Buttons, gp.capRows(tn, button)...)
	row = nil
	for i, c := range gp.commands.list[:min(maxSwitches, len(gp.commands.list))] {
		on := !slices.Contains(g.Off, c.Name)
		row = append(row, button(on, "/"+c.Name, flip(on), c.Name))
		if len(row) == 2 || i == min(maxSwitches, len(gp.commands.list))-1 {
			post.Buttons, row = append(post.Buttons, row), nil
		}
	}
	return post
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

// pressed shows or changes the settings of the group where a button was pressed. Only
// its moderators and the operators may do that.
func (gp *groupPanel) pressed(ctx context.Context, tn *turn, data string) error {
	parts := strings.Split(data, ":")
	p, ok := tn.p.(platform.Moderated)
	if len(parts) != 3 || !ok || !tn.Chat.Group {
		tn.answer(ctx, "too_old")
		return nil
	}
	if !gp.guard.Admin(tn.Event) {
		switch may, err := p.Moderates(ctx, tn.Chat, tn.User.ID); {
		case ctx.Err() != nil:
			return fmt.Errorf("asking who moderates a group: %w", ctx.Err())
		case err != nil:
			tn.answer(ctx, "group_unsure")
			return nil
		case !may:
			tn.answer(ctx, "group_moderators")
			return nil
		}
	}
	done := ""
	if parts[1] != "menu" {
		change := gp.change(parts[1], parts[2])
		if change == nil {
			tn.answer(ctx, "too_old")
			return nil
		}
		g, err := gp.groups.change(ctx, tn.Event, change)
		if err != nil {
			return err
		}
		tn.group = g
		tn.speak()
		done = tn.say("saved", nil)
	}
	tn.answerText(ctx, done)
	return tn.edit(ctx, tn.Message.ID, gp.post(tn, parts[0]))
}

// change returns the change that a button makes; nil if no button offers it.
func (gp *groupPanel) change(key, value string) func(*GroupSettings) {
	c := gp.commands.byName[value]
	switch {
	case key == "lang" && value == "-":
		return func(g *GroupSettings) { g.Language = "" }
	case key == "lang" && slices.Contains(gp.texts.Languages(), value):
		return func(g *GroupSettings) { g.Language = value }
	case key == "usual" && c != nil && c.Takes(workflow.Prompt):
		return func(g *GroupSettings) { g.Usual = value }
	case key == capPictures, key == capSeconds:
		return withCap(key, value)
	case key == "cover":
		return func(g *GroupSettings) { g.Cover = value == "on" }
	case key == "on" && c != nil:
		return func(g *GroupSettings) {
			g.Off = slices.DeleteFunc(g.Off, func(name string) bool { return name == value })
		}
	case key == "off" && c != nil:
		return func(g *GroupSettings) {
			if !slices.Contains(g.Off, value) {
				g.Off = append(g.Off, value)
			}
		}
	}
	return nil
}
