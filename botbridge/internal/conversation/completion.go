package conversation

import (
	"context"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// completion completes arguments while users type them.
type completion struct {
	catalogs *catalogs
	commands *repertoire
	declared []platform.Command
}

// values returns the choices that bot.yaml or the fleet has for an
// argument, and for a number its default and bounds.
func (cp *completion) values(ctx context.Context, command, argument, typed string) []string {
	at := slices.IndexFunc(cp.declared, func(c platform.Command) bool { return c.Name == command })
	if at < 0 {
		return nil
	}
	arguments := cp.declared[at].Arguments
	if at = slices.IndexFunc(arguments, func(a platform.Argument) bool { return a.Name == argument }); at < 0 {
		return nil
	}
	if choices := arguments[at].Choices; len(choices) > 0 {
		return workflow.Fitting(typed, choices)
	}
	c := cp.commands.byName[command]
	if c == nil {
		return nil
	}
	args := c.Arguments()
	if at = slices.IndexFunc(args, func(a workflow.Argument) bool { return a.Name == argument }); at < 0 {
		return nil
	}
	d, err := c.Domain(args[at], cp.catalogs.of(ctx, c.Classes(argument)))
	if err != nil {
		return nil
	}
	now := args[at].Now()
	switch d.Kind {
	case workflow.OneOf:
		return workflow.Fitting(typed, first(now, d.Choices))
	case workflow.WholeNumber, workflow.AnyNumber:
		if typed != "" {
			now = typed
		}
		return first(now, []string{workflow.PlainNumber(d.Low), workflow.PlainNumber(d.High)})
	case workflow.OnOff, workflow.AnyText:
	}
	return nil
}

// first returns the list with the word moved to the front, or added there.
func first(word string, list []string) []string {
	if word == "" {
		return list
	}
	return append([]string{word}, slices.DeleteFunc(slices.Clone(list), func(other string) bool { return other == word })...)
}
