package conversation

import (
	"context"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
)

// models answers /models: which models each command can use, and which of them the fleet
// lacks now.
func (t *Talk) models(ctx context.Context, tn *turn) error {
	lines := []string{t.say(tn, "models_head", nil), ""}
	asked := false
	for _, c := range t.here(tn) {
		usual := c.Model()
		if usual == "" {
			continue
		}
		list := c.Spec.Models
		if !slices.Contains(list, usual) {
			list = append([]string{usual}, list...)
		}
		catalog := t.catalogs.of(ctx, c.ModelClasses())
		var names []string
		for _, model := range list {
			name := model
			if model == usual && len(list) > 1 {
				name += t.say(tn, "models_usual", nil)
			}
			has, known := c.Offers(catalog, model)
			asked = asked || known
			if known && !has {
				name += t.say(tn, "models_away", nil)
			}
			names = append(names, name)
		}
		key := "models_choice"
		if len(c.Spec.Models) == 0 {
			key = "models_fixed"
		}
		lines = append(lines, t.say(tn, key, locale.With{"command": c.Name, "models": names}))
	}
	if len(lines) == 2 {
		return t.reply(ctx, tn, t.say(tn, "models_none", nil))
	}
	if !asked {
		lines = append(lines, "", t.say(tn, "models_unknown", nil))
	}
	return t.replyLong(ctx, tn, strings.Join(lines, "\n"))
}
