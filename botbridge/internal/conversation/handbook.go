package conversation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

const (
	// helpChoices is how many choices of an argument /help COMMAND lists.
	helpChoices = 6
	// maxChoices bounds how many /help COMMAND ARGUMENT lists.
	maxChoices = 500
)

// handbook says what the commands are and what they take.
type handbook struct {
	guard    *limits.Guard
	enhance  *Enhance
	contact  string
	helpURL  string
	catalogs *catalogs
	commands *repertoire
}

// greet answers /start: with a default command, plain words are enough in a private chat.
func (hb *handbook) greet(ctx context.Context, tn *turn) error {
	var lines []string
	if !tn.Chat.Group && hb.commands.usual(tn) != nil {
		lines = append(lines, tn.say("start_words", nil))
	} else if c := hb.commands.fromWords(tn); c != nil {
		lines = append(lines, tn.say("start_command", locale.With{"command": c.Name}))
	}
	if !tn.Chat.Group && hb.commands.byName[hb.commands.edit] != nil {
		lines = append(lines, tn.say("start_photo", nil))
	}
	if len(lines) == 0 {
		return hb.help(ctx, tn)
	}
	return tn.reply(ctx, strings.Join(append(lines, tn.say("start_more", nil)), "\n"))
}

// fromWords returns the command that makes a picture from words alone: the default one where
// the turn is, else the first; nil if there is none.
func (rep *repertoire) fromWords(tn *turn) *workflow.Command {
	commands := rep.here(tn)
	if c := rep.usual(tn); slices.Contains(commands, c) {
		return c
	}
	for _, c := range commands {
		if c.Takes(workflow.Prompt) && !c.Takes(workflow.Image) {
			return c
		}
	}
	return nil
}

// help lists the commands, or what one of them takes (/help COMMAND), or all choices of one
// argument (/help COMMAND ARGUMENT).
func (hb *handbook) help(ctx context.Context, tn *turn) error {
	words := strings.Fields(strings.ToLower(tn.rest))
	if len(words) > 0 {
		if c := hb.commands.byName[strings.TrimPrefix(words[0], "/")]; c != nil {
			if off, err := tn.off(ctx, c); off || err != nil {
				return err
			}
			if len(words) > 1 {
				return hb.helpArgument(ctx, tn, c, strings.TrimLeft(words[1], "-—–"))
			}
			return hb.helpCommand(ctx, tn, c)
		}
	}
	lines := []string{tn.say("help_head", nil), ""}
	commands := hb.commands.here(tn)
	for _, c := range commands {
		line := "/" + c.Name + " - " + About(c, tn.language)
		if _, sells := tn.p.(platform.Seller); sells && hb.contact != "" && c.Spec.Stars > 0 {
			line += fmt.Sprintf(" (%d ⭐)", c.Spec.Stars)
		}
		lines = append(lines, line)
	}
	lines = append(lines, "", tn.say("help_flags", nil), "", tn.say("help_pictures", nil))
	if hasStyles(commands) {
		lines = append(lines, tn.say("help_styles", nil))
	}
	lines = append(lines, "", tn.say("help_tail", nil))
	if hb.enhance != nil {
		lines = append(lines, tn.say("help_better", nil))
	}
	if hb.guard.Admin(tn.Event) {
		lines = append(lines, "", tn.say("help_admin", nil))
		if hb.contact != "" {
			lines = append(lines, tn.say("usage_refund", nil))
		}
	}
	var links []platform.Button
	if hb.helpURL != "" {
		links = append(links, platform.Button{Label: tn.say("button_help", nil), URL: hb.helpURL})
	}
	return tn.replyLong(ctx, strings.Join(lines, "\n"), links...)
}

// helpCommand says what a command takes.
func (hb *handbook) helpCommand(ctx context.Context, tn *turn, c *workflow.Command) error {
	lines := []string{"/" + c.Name + " - " + About(c, tn.language)}
	for _, line := range []struct {
		role workflow.Role
		key  string
		with locale.With
	}{
		{workflow.Image, "help_image", nil},
		{workflow.Mask, "help_mask", nil},
		{workflow.Negative, "help_no", nil},
		{workflow.Size, "help_size", locale.With{"max": workflow.Megapixels(c.Spec.MaxPixels)}},
		{workflow.Count, "help_n", locale.With{"max": c.Spec.MaxCount}},
		{workflow.Steps, "help_steps", locale.With{"max": c.Spec.MaxSteps}},
		{workflow.Strength, "help_strength", nil},
		{workflow.Model, "help_model", locale.With{"models": c.Spec.Models}},
		{workflow.Seed, "help_seed", nil},
	} {
		if !c.Takes(line.role) || line.role == workflow.Model && len(c.Spec.Models) == 0 {
			continue
		}
		lines = append(lines, tn.say(line.key, line.with))
	}
	if len(c.Styles()) > 0 {
		lines = append(lines, tn.say("help_style", locale.With{"style": c.Styles()[0].Name}))
	}
	lines = append(lines, tn.say("help_file", nil), tn.say("help_spoiler", nil))
	if hb.enhance != nil && c.Takes(workflow.Prompt) && !c.Knows(enhanceFlag) {
		lines = append(lines, tn.say("help_enhance", nil))
	}
	if len(c.Arguments()) > 0 {
		catalog := hb.catalogs.of(ctx, c.Classes())
		for _, a := range c.Arguments() {
			if line := hb.argumentLine(tn, c, a, catalog); line != "" {
				lines = append(lines, line)
			}
		}
	}
	return tn.replyLong(ctx, strings.Join(lines, "\n"))
}

// argumentLine says what an argument may be, "" if it cannot be set right now.
func (hb *handbook) argumentLine(tn *turn, c *workflow.Command, a workflow.Argument, catalog *workflow.Catalog) string {
	d, err := c.Domain(a, catalog)
	if err != nil {
		return ""
	}
	values := ""
	switch d.Kind {
	case workflow.WholeNumber, workflow.AnyNumber:
		values = tn.say("values_range", locale.With{"low": workflow.PlainNumber(d.Low), "high": workflow.PlainNumber(d.High)})
	case workflow.OneOf:
		values = strings.Join(d.Choices[:min(helpChoices, len(d.Choices))], ", ")
		if more := len(d.Choices) - helpChoices; more > 0 {
			values += tn.say("values_more", locale.With{"n": more, "command": c.Name, "name": a.Name})
		}
	case workflow.OnOff:
		values = tn.say("values_switch", nil)
	case workflow.AnyText:
		values = tn.say("values_text", nil)
	}
	line := fmt.Sprintf("--%s: %s", a.Name, values)
	if now := a.Now(); now != "" && d.Kind != workflow.AnyText {
		line += tn.say("values_now", locale.With{"now": now})
	}
	if about := inLanguage(a.Spec.About, tn.language); about != "" {
		line += " - " + about
	}
	return line
}

// helpArgument lists all choices of an argument.
func (hb *handbook) helpArgument(ctx context.Context, tn *turn, c *workflow.Command, name string) error {
	args := c.Arguments()
	at := slices.IndexFunc(args, func(a workflow.Argument) bool { return a.Name == name })
	if at < 0 {
		return hb.helpCommand(ctx, tn, c)
	}
	catalog := hb.catalogs.of(ctx, c.Classes(name))
	d, err := c.Domain(args[at], catalog)
	switch {
	case err != nil:
		return tn.reply(ctx, tn.say("arg_unasked", locale.With{"flag": "--" + name}))
	case d.Kind == workflow.OneOf:
		return tn.replyLong(ctx, "--"+name+":\n"+strings.Join(d.Choices[:min(maxChoices, len(d.Choices))], "\n"))
	}
	return tn.reply(ctx, hb.argumentLine(tn, c, args[at], catalog))
}

// About returns the description of a command in a language.
func About(c *workflow.Command, language string) string {
	if text := inLanguage(c.Spec.About, language); text != "" {
		return text
	}
	return c.Name
}

func inLanguage(texts map[string]string, language string) string {
	for _, candidate := range []string{language, locale.Default} {
		if text := texts[candidate]; text != "" {
			return text
		}
	}
	return ""
}

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
