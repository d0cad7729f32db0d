package discord

import (
	"fmt"
	"net/url"

	"github.com/disgoorg/disgo/discord"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// menuID begins the custom id of a menu; its values are the data of buttons.
const menuID = "menu:"

// components turns rows of buttons into what Discord shows under a message: five rows
// of up to five buttons. A longer row becomes a menu, and its links a row of their own.
func components(rows [][]platform.Button) (out []discord.ContainerComponent) {
	add := func(parts ...discord.InteractiveComponent) {
		if len(parts) > 0 && len(out) < maxRows {
			out = append(out, discord.NewActionRow(parts...))
		}
	}
	for i, row := range rows {
		var buttons, links []discord.InteractiveComponent
		for _, b := range row {
			switch {
			case linkable(b.URL):
				links = append(links, discord.ButtonComponent{Style: discord.ButtonStyleLink, Label: platform.Clip(b.Label, maxLabel), URL: b.URL})
			case b.URL == "" && len(b.Data) <= maxCustomID:
				buttons = append(buttons, discord.ButtonComponent{Style: discord.ButtonStyleSecondary, Label: platform.Clip(b.Label, maxLabel), CustomID: b.Data})
			}
		}
		if len(buttons)+len(links) <= maxInRow {
			add(append(buttons, links...)...)
			continue
		}
		if len(buttons) > maxInRow {
			buttons = []discord.InteractiveComponent{menu(i, row)}
		}
		add(buttons...)
		add(links[:min(len(links), maxInRow)]...)
	}
	return out
}

// linkable reports whether Discord takes an address under a button. It refuses the whole
// message for one that it does not take.
func linkable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && len(address) <= maxURL
}

// menu shows the buttons of a long row as one menu.
func menu(at int, row []platform.Button) discord.StringSelectMenuComponent {
	m := discord.StringSelectMenuComponent{CustomID: fmt.Sprintf("%s%d", menuID, at)}
	for _, b := range row {
		if b.URL == "" && len(b.Data) <= maxCustomID && len(m.Options) < maxMenu {
			m.Options = append(m.Options, discord.StringSelectMenuOption{Label: platform.Clip(b.Label, maxMenuLabel), Value: b.Data})
		}
	}
	return m
}
