package discord

import (
	"context"
	"slices"

	"github.com/disgoorg/disgo/discord"
)

// maxSuggesting bounds the suggestions that are made at the same time. Each key that
// somebody presses asks for some, and nobody misses those of a key before.
const maxSuggesting = 64

// complete answers with values for the argument that somebody is filling in. It does not
// wait: if there are too many such questions, this one gets no answer.
func (d *receiver) complete(ctx context.Context, in *interaction) {
	at := slices.IndexFunc(in.Data.Options, func(f filled) bool { return f.Focused })
	if at < 0 || d.o.Suggest == nil || !d.welcome(in.Guild, in.Member) {
		return
	}
	argument := in.Data.Options[at]
	typed, err := argument.text()
	if err != nil {
		return
	}
	select {
	case d.suggesting <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-d.suggesting }()
		ctx, cancel := context.WithTimeout(ctx, ackPatience)
		defer cancel()
		choices := []discord.AutocompleteChoice{} // "null" is no list
		for _, value := range d.o.Suggest(ctx, in.Data.Name, argument.Name, typed) {
			// A value that is too long can still be written out in a message.
			if value != "" && len(value) <= maxAbout && len(choices) < maxChoices {
				choices = append(choices, discord.AutocompleteChoiceString{Name: value, Value: value})
			}
		}
		err := d.respond(ctx, in, discord.InteractionResponseTypeAutocompleteResult, map[string]any{"choices": choices}, nil)
		if err != nil {
			d.o.Logger.Debug("cannot suggest values", "error", err)
		}
	}()
}
