package conversation

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// menuPause is the pause before a group's menu is set again after a failure.
const menuPause = time.Minute

// here returns the commands that are on in the chat of a turn, in the order of /help.
func (rep *repertoire) here(tn *turn) []*workflow.Command {
	return slices.DeleteFunc(slices.Clone(rep.list), func(c *workflow.Command) bool { return slices.Contains(tn.group.Off, c.Name) })
}

// menuOf returns the commands to hide from a group's menu and a digest of the result, ""
// for the default menu.
func (t *Talk) menuOf(p platform.Menued, g GroupSettings) (off []string, shows string) {
	for _, c := range t.commands.list {
		if slices.Contains(g.Off, c.Name) {
			off = append(off, c.Name)
		}
	}
	if len(off) == 0 {
		return nil, ""
	}
	return off, digest(p.Menu() + "\n" + strings.Join(off, "\n"))
}

// keepMenu hides a group's disabled commands from the menu that the platform shows there,
// in the background. The digest of the menu is stored with the settings: if a menu was not
// set because the bridge was killed, or comes from an older bot.yaml, the next message
// there sets it.
func (t *Talk) keepMenu(ctx context.Context, tn *turn) {
	p, ok := tn.p.(platform.Menued)
	if !ok || !tn.Chat.Group {
		return
	}
	if _, shows := t.menuOf(p, tn.group); shows == tn.group.Menu {
		return
	}
	now, name := time.Now(), groupName(tn.Event)
	t.mu.Lock()
	for group, until := range t.menus {
		if now.After(until) {
			delete(t.menus, group)
		}
	}
	_, busy := t.menus[name]
	if !busy {
		t.menus[name] = now.Add(menuPause)
	}
	t.mu.Unlock()
	if busy {
		return
	}
	e, ctx := tn.Event, driving(ctx)
	t.background.Go(func() {
		if err := t.setMenu(ctx, e, tn.p, p); err != nil {
			t.o.Logger.Warn("the menu of a group cannot be set now", "platform", e.Platform, "error", err)
			return
		}
		t.mu.Lock()
		delete(t.menus, name)
		t.mu.Unlock()
	})
}

// setMenu sets the menu of a group until it matches the settings, which may change
// meanwhile.
func (t *Talk) setMenu(ctx context.Context, e platform.Event, p platform.Platform, menued platform.Menued) error {
	for {
		g, err := t.groups.of(ctx, e)
		if err != nil {
			return err
		}
		off, shows := t.menuOf(menued, g)
		if shows == g.Menu {
			return nil
		}
		if err := t.o.Outbox.Menu(ctx, p, e.Chat, off); err != nil {
			return err
		}
		if _, err := t.groups.change(ctx, e, func(g *GroupSettings) { g.Menu = shows }); err != nil {
			return err
		}
	}
}
