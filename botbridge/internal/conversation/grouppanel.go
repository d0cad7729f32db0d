package conversation

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// groupPanel shows moderators the settings of their group and changes them.
type groupPanel struct {
	guard    *limits.Guard
	texts    *locale.Bundle
	commands *repertoire
	groups   *groups
}

// capRows returns the buttons for the limit, and the one for spoilers where the platform
// has them.
func (gp *groupPanel) capRows(tn *turn, button func(on bool, label, key, value string) platform.Button) (rows [][]platform.Button) {
	metered := gp.guard.Metered()
	key, label := capPictures, "group_cap_n"
	if metered {
		key, label = capSeconds, "group_cap_seconds"
	}
	now := tn.group.daily(metered)
	rows = append(rows, []platform.Button{button(now == 0, tn.say("group_cap_own", nil), key, "-")})
	var row []platform.Button
	for _, n := range caps(metered) {
		row = append(row, button(now == n, tn.say(label, locale.With{"n": n}), key, strconv.FormatInt(n, 10)))
	}
	rows = append(rows, row)
	if tn.p.Limits().Covers {
		rows = append(rows, []platform.Button{button(tn.group.Cover, tn.say("group_cover", nil), "cover", flip(tn.group.Cover))})
	}
	return rows
}

// button leads from a user's settings to the group's; nil on platforms that do not
// tell who moderates.
func (gp *groupPanel) button(tn *turn) []platform.Button {
	if _, ok := tn.p.(platform.Moderated); !ok || !tn.Chat.Group {
		return nil
	}
	return []platform.Button{{Label: tn.say("group_button", nil), Data: groupData(tn.User.ID, "menu", "-")}}
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
