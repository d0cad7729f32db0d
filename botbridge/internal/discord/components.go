package discord

import (
	"fmt"

	"github.com/disgoorg/disgo/discord"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// menuID begins the custom id of a menu; its values are the data of buttons.
const menuID = "menu:"

// components turns rows of buttons into what Discord shows under a message: five rows
// of up to five buttons. A longer row becomes a menu.
func components(rows [][]platform.Button) (out []discord.ContainerComponent) {
	for i, row := range rows {
		switch {
		case len(row) == 0:
		case len(out) == maxRows:
			return out
		case len(row) > maxInRow:
			out = append(out, discord.NewActionRow(menu(i, row)))
		default:
			var buttons []discord.InteractiveComponent
			for _, b := range row {
				if len(b.Data) <= maxCustomID {
					buttons = append(buttons, discord.ButtonComponent{Style: discord.ButtonStyleSecondary, Label: clip(b.Label, maxLabel), CustomID: b.Data})
				}
			}
			if len(buttons) > 0 {
				out = append(out, discord.NewActionRow(buttons...))
			}
		}
	}
	return out
}

// menu shows a row of many buttons as one menu.
func menu(at int, row []platform.Button) discord.StringSelectMenuComponent {
	m := discord.StringSelectMenuComponent{CustomID: fmt.Sprintf("%s%d", menuID, at)}
	for _, b := range row[:min(len(row), maxMenu)] {
		if len(b.Data) <= maxCustomID {
			m.Options = append(m.Options, discord.StringSelectMenuOption{Label: clip(b.Label, maxMenuLabel), Value: b.Data})
		}
	}
	return m
}
