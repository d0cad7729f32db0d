package conversation

import (
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Declare describes all commands that everybody may use, for platforms that show forms for
// them: first those that make pictures, then the bridge's own, then those about a picture.
// enhance says whether the bridge can suggest better words.
func Declare(texts *locale.Bundle, commands []*workflow.Command, enhance bool) []platform.Command {
	d := declarer{texts, enhance}
	var list []platform.Command
	for _, c := range commands {
		list = append(list, platform.Command{
			Name: c.Name, About: d.inAll(func(language string) string { return About(c, language) }), Arguments: d.arguments(c),
		})
	}
	for _, name := range MenuFor(commands, enhance) {
		own := platform.Command{Name: name, Private: true, About: d.text("menu_" + name)}
		switch name {
		case enhanceFlag:
			words := d.argument("prompt", "", platform.Words)
			words.Required, own.Private = true, false
			own.Arguments = []platform.Argument{words}
		case "forget":
			own.Arguments = []platform.Argument{d.argument("me", "", platform.Switch)}
		case "my":
			own.Arguments = []platform.Argument{d.argument("search", "", platform.Words)}
		case "cancel":
			own.Arguments = []platform.Argument{d.argument("all", "", platform.Switch)}
		case "help":
			which := d.argument("command", "", platform.Words)
			for _, c := range commands {
				which.Choices = append(which.Choices, c.Name)
			}
			own.Arguments = []platform.Argument{which}
		}
		list = append(list, own)
	}
	about := []string{"info", "remix", "delete"}
	if hasStyles(commands) {
		about = append(about, "styles")
	}
	for _, name := range about {
		// Where no form can be shown, the words come as a reply.
		list = append(list, platform.Command{Name: name, OnMessage: true, Private: name != "remix", About: d.text("on_" + name)})
	}
	return list
}

type declarer struct {
	texts   *locale.Bundle
	enhance bool
}

// inAll returns a text in all languages; "" is the default one.
func (d declarer) inAll(say func(language string) string) map[string]string {
	all := map[string]string{"": say(locale.Default)}
	for _, language := range d.texts.Languages() {
		if language != locale.Default {
			all[language] = say(language)
		}
	}
	return all
}

func (d declarer) text(key string) map[string]string {
	return d.inAll(func(language string) string { return d.texts.Say(language, key, nil) })
}

func (d declarer) argument(name, flag string, kind platform.ArgumentKind) platform.Argument {
	return platform.Argument{Name: name, Flag: flag, Kind: kind, About: d.text("argument_" + name)}
}

// arguments returns what a command takes. Files are in the order in which the bridge reads
// those of a message.
func (d declarer) arguments(c *workflow.Command) (list []platform.Argument) {
	for _, r := range workflow.Roles() {
		if !c.Takes(r) {
			continue
		}
		a := d.argument(string(r), "--"+string(r), platform.Words)
		switch r {
		case workflow.Prompt:
			a.Flag, a.Required = "", !c.Takes(workflow.Image)
		case workflow.Negative:
			a.Flag = "--no"
		case workflow.Image:
			a.Flag, a.Kind, a.Required = "", platform.Picture, true
		case workflow.Mask:
			a.Flag, a.Kind, a.Required = "", platform.Picture, true
		case workflow.Size:
			a.Choices = c.Sizes()
		case workflow.Count:
			a.Kind, a.Min, a.Max = platform.Whole, 1, float64(c.Spec.MaxCount)
		case workflow.Steps:
			a.Kind, a.Min, a.Max = platform.Whole, 1, float64(c.Spec.MaxSteps)
		case workflow.Strength:
			a.Kind, a.Min, a.Max = platform.Fraction, 0.01, 1
		case workflow.Model:
			a.Choices = c.Spec.Models
		case workflow.Seed:
			a.Kind, a.Min, a.Max = platform.Whole, 0, float64(c.Spec.MaxSeed)
		}
		if r == workflow.Count && c.Spec.MaxCount < 2 || r == workflow.Model && len(c.Spec.Models) == 0 {
			continue
		}
		list = append(list, a)
		for n := 2; r == workflow.Image && n <= c.Images(); n++ {
			a.Name = string(r) + strconv.Itoa(n)
			list = append(list, a)
		}
	}
	if len(c.Styles()) > 0 {
		style := d.argument("style", "--style", platform.Words)
		for _, s := range c.Styles() {
			style.Choices = append(style.Choices, s.Name)
		}
		list = append(list, style)
	}
	list = append(list, d.argument("file", "--file", platform.Switch), d.argument("spoiler", "--spoiler", platform.Switch))
	if d.enhance && c.Takes(workflow.Prompt) && !c.Knows(enhanceFlag) {
		list = append(list, d.argument(enhanceFlag, "--"+enhanceFlag, platform.Switch))
	}
	for _, a := range c.Arguments() {
		if !slices.ContainsFunc(list, func(other platform.Argument) bool { return other.Name == a.Name }) {
			list = append(list, d.own(a))
		}
	}
	return list
}

// own describes an argument of one command. Unless bot.yaml lists its values, only the
// fleet knows them: they are suggested while the argument is filled in, and a wrong one is
// refused with the choices.
func (d declarer) own(a workflow.Argument) platform.Argument {
	own := platform.Argument{Name: a.Name, Flag: "--" + a.Name, Choices: a.Spec.Choices}
	if a.Switch() {
		own.Choices = []string{"on", "off"}
	}
	own.Suggested = len(own.Choices) == 0
	own.About = d.inAll(func(language string) string {
		for _, candidate := range []string{language, locale.Default} {
			if text := a.Spec.About[candidate]; text != "" {
				return text
			}
		}
		return a.Name + d.texts.Say(language, "values_now", locale.With{"now": a.Now()})
	})
	return own
}
