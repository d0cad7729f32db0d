package conversation

import (
	"context"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
)

// models answers /models: which models each command can use, and which of them the fleet
// lacks now.
func (hb *handbook) models(ctx context.Context, tn *turn) error {
	lines := []string{tn.say("models_head", nil), ""}
	asked := false
	for _, c := range hb.commands.here(tn) {
		usual := c.Model()
		if usual == "" {
			continue
		}
		list := c.Spec.Models
		if !slices.Contains(list, usual) {
			list = append([]string{usual}, list...)
		}
		catalog := hb.catalogs.of(ctx, c.ModelClasses())
		var names []string
		for _, model := range list {
			name := model
			if model == usual && len(list) > 1 {
				name += tn.say("models_usual", nil)
			}
			has, known := c.Offers(catalog, model)
			asked = asked || known
			if known && !has {
				name += tn.say("models_away", nil)
			}
			names = append(names, name)
		}
		key := "models_choice"
		if len(c.Spec.Models) == 0 {
			key = "models_fixed"
		}
		lines = append(lines, tn.say(key, locale.With{"command": c.Name, "models": names}))
	}
	if len(lines) == 2 {
		return tn.reply(ctx, tn.say("models_none", nil))
	}
	if !asked {
		lines = append(lines, "", tn.say("models_unknown", nil))
	}
	return tn.replyLong(ctx, strings.Join(lines, "\n"))
}
