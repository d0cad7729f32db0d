package conversation

import (
	"context"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// MenuFor is Menu plus the names that only some configurations need.
func MenuFor(commands []*workflow.Command, enhance bool) []string {
	if hasStyles(commands) {
		return append([]string{"styles"}, Menu(enhance)...)
	}
	return Menu(enhance)
}

func hasStyles(commands []*workflow.Command) bool {
	return slices.ContainsFunc(commands, func(c *workflow.Command) bool { return len(c.Styles()) > 0 })
}

// pictureStyles lists the styles and makes pictures again in another.
type pictureStyles struct {
	commands *repertoire
	find     *finder
	intake   *intake
	menu     *pictureMenu
}

// list answers /styles: it lists the styles, or offers those for the picture that is
// replied to.
func (ps *pictureStyles) list(ctx context.Context, tn *turn) error {
	if id, err := ps.find.replied(ctx, tn); err != nil {
		return err
	} else if id != "" {
		rec, ok, err := ps.menu.replied(ctx, tn, "styles")
		if !ok {
			return err
		}
		return ps.menu.post(ctx, tn, rec, ps.menuOf(tn, rec))
	}
	var names []string
	about, commands := map[string]string{}, map[string][]string{}
	here := ps.commands.here(tn)
	for _, c := range here {
		for _, s := range c.Styles() {
			if commands[s.Name] == nil {
				names = append(names, s.Name)
				about[s.Name] = inLanguage(s.Spec.About, tn.language)
			}
			commands[s.Name] = append(commands[s.Name], "/"+c.Name)
		}
	}
	if len(names) == 0 {
		return tn.reply(ctx, tn.say("styles_none", nil))
	}
	lines := []string{tn.say("styles_head", locale.With{"style": names[0], "command": strings.TrimPrefix(commands[names[0]][0], "/")}), ""}
	for _, name := range names {
		line := name
		if about[name] != "" {
			line += " - " + about[name]
		}
		if len(commands[name]) < len(here) {
			line += " (" + strings.Join(commands[name], ", ") + ")"
		}
		lines = append(lines, line)
	}
	return tn.replyLong(ctx, strings.Join(lines, "\n"))
}

// menuOf returns buttons for a picture's styles, as many as fit.
func (ps *pictureStyles) menuOf(tn *turn, rec request.Record) platform.Post {
	const inRow, most = 3, 12
	post := ps.menu.plain(tn, rec, tn.say("styles_none", nil))
	if c := ps.commands.byName[rec.Command]; c != nil && len(c.Styles()) > 0 {
		post.Buttons, post.Text = nil, tn.say("styles_pick", nil)
		for i, s := range c.Styles()[:min(most, len(c.Styles()))] {
			if i%inRow == 0 {
				post.Buttons = append(post.Buttons, nil)
			}
			last := len(post.Buttons) - 1
			post.Buttons[last] = append(post.Buttons[last], platform.Button{Label: s.Name, Data: request.ButtonData(request.VerbStyle+s.Name, rec.ID)})
		}
		post.Buttons = append(post.Buttons, tn.buttons(rec.ID, request.VerbBack)...)
	}
	return post
}

// pressedStyles offers the styles in the menu.
func (ps *pictureStyles) pressedStyles(ctx context.Context, tn *turn, rec request.Record) error {
	tn.answerText(ctx, "")
	return ps.menu.turn(ctx, tn, ps.menuOf(tn, rec))
}

// pressedStyle makes a picture again in another style, with the same seed.
func (ps *pictureStyles) pressedStyle(ctx context.Context, tn *turn, rec request.Record, style string) error {
	c := ps.commands.byName[rec.Command]
	if c == nil || len(c.Having([]string{style})) == 0 {
		tn.answer(ctx, "too_old")
		return nil
	}
	tn.answer(ctx, "on_it")
	args := rec.Args
	args.Styles, args.SeedGiven = []string{style}, c.Takes(workflow.Seed)
	return ps.intake.request(ctx, tn, c, wish{id: request.IDOf(tn.Key()), args: args, inputs: again(rec.Inputs), replyTo: rec.Message})
}
