package conversation

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// menuPause is the pause before a group's menu is set again after a failure.
const menuPause = time.Minute

// here returns the commands that are on in the chat of a turn, in the order of /help.
func (rep *repertoire) here(tn *turn) []*workflow.Command {
	return slices.DeleteFunc(slices.Clone(rep.list), func(c *workflow.Command) bool { return slices.Contains(tn.group.Off, c.Name) })
}

// groupMenus keeps the menus that platforms show in groups as the moderators want them.
type groupMenus struct {
	outbox   *outbox.Outbox
	logger   *slog.Logger
	commands *repertoire
	groups   *groups

	mu         sync.Mutex
	background sync.WaitGroup
	until      map[string]time.Time // groups whose menu is being set, or is not tried again before this time
}

// of returns the commands to hide from a group's menu and a digest of the result, ""
// for the default menu.
func (gm *groupMenus) of(p platform.Menued, g GroupSettings) (off []string, shows string) {
	for _, c := range gm.commands.list {
		if slices.Contains(g.Off, c.Name) {
			off = append(off, c.Name)
		}
	}
	if len(off) == 0 {
		return nil, ""
	}
	return off, digest(p.Menu() + "\n" + strings.Join(off, "\n"))
}

// keep hides a group's disabled commands from the menu that the platform shows there,
// in the background. The digest of the menu is stored with the settings: if a menu was not
// set because the bridge was killed, or comes from an older bot.yaml, the next message
// there sets it.
func (gm *groupMenus) keep(ctx context.Context, tn *turn) {
	p, ok := tn.p.(platform.Menued)
	if !ok || !tn.Chat.Group {
		return
	}
	if _, shows := gm.of(p, tn.group); shows == tn.group.Menu {
		return
	}
	now, name := time.Now(), groupName(tn.Event)
	gm.mu.Lock()
	for group, until := range gm.until {
		if now.After(until) {
			delete(gm.until, group)
		}
	}
	_, busy := gm.until[name]
	if !busy {
		gm.until[name] = now.Add(menuPause)
	}
	gm.mu.Unlock()
	if busy {
		return
	}
	e, ctx := tn.Event, driving(ctx)
	gm.background.Go(func() {
		if err := gm.set(ctx, e, tn.p, p); err != nil {
			gm.logger.Warn("the menu of a group cannot be set now", "platform", e.Platform, "error", err)
			return
		}
		gm.mu.Lock()
		delete(gm.until, name)
		gm.mu.Unlock()
	})
}

// set sets the menu of a group until it matches the settings, which may change
// meanwhile.
func (gm *groupMenus) set(ctx context.Context, e platform.Event, p platform.Platform, menued platform.Menued) error {
	for {
		g, err := gm.groups.of(ctx, e)
		if err != nil {
			return err
		}
		off, shows := gm.of(menued, g)
		if shows == g.Menu {
			return nil
		}
		if err := gm.outbox.Menu(ctx, p, e.Chat, off); err != nil {
			return err
		}
		if _, err := gm.groups.change(ctx, e, func(g *GroupSettings) { g.Menu = shows }); err != nil {
			return err
		}
	}
}
