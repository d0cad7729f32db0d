package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/disgoorg/disgo/discord"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// Command is a slash command.
type Command = platform.Command

// register registers the slash commands, until that is done or ctx ends.
func (d *Discord) register(ctx context.Context) {
	for pauses := retry.New(time.Second, time.Minute); ctx.Err() == nil; pauses.Wait(ctx) {
		once, cancel := context.WithTimeout(ctx, helloTimeout)
		changed, err := d.registerOnce(once)
		cancel()
		switch {
		case err == nil:
			if changed {
				d.o.Logger.Info("registered the commands with Discord", "commands", len(d.o.Commands))
			}
			return
		case ctx.Err() == nil:
			d.o.Logger.Warn("cannot register the commands with Discord", "error", err)
		}
	}
}

// registerOnce replaces the registered commands if they differ: Discord allows only 200
// new ones a day, and shows changed ones as new.
func (d *Discord) registerOnce(ctx context.Context) (changed bool, err error) {
	me, err := d.whoami(ctx)
	if err != nil {
		return false, err
	}
	path := "/applications/" + me.application + "/commands"
	var there []any
	if err := d.rest.do(ctx, call{method: http.MethodGet, path: path + "?with_localizations=true"}, &there); err != nil {
		return false, err
	}
	wanted := declare(d.o.Commands)
	text, err := json.Marshal(wanted)
	if err != nil {
		return false, err
	}
	var want []any
	if err := json.Unmarshal(text, &want); err != nil {
		return false, err
	}
	if sameCommands(there, want) {
		return false, nil
	}
	return true, d.rest.do(ctx, call{method: http.MethodPut, path: path, body: wanted}, nil)
}

// declare turns commands into what Discord registers.
func declare(commands []Command) []discord.ApplicationCommandCreate {
	list := make([]discord.ApplicationCommandCreate, 0, len(commands))
	slashes, onMessage := 0, 0
	for _, c := range commands {
		if c.OnMessage {
			if onMessage++; onMessage <= maxOnMessage {
				list = append(list, messageCommand(c))
			}
			continue
		}
		if slashes++; slashes > MaxCommands {
			continue
		}
		about, others := described(c.Name, c.About)
		slash := discord.SlashCommandCreate{
			Name: c.Name, Description: about, DescriptionLocalizations: others,
			IntegrationTypes: installed(), Contexts: contexts(),
		}
		for _, a := range ordered(c.Arguments) {
			slash.Options = append(slash.Options, option(a))
		}
		list = append(list, slash)
	}
	return list
}

// installed says that servers, and not people, install the bot.
func installed() []discord.ApplicationIntegrationType {
	return []discord.ApplicationIntegrationType{discord.ApplicationIntegrationTypeGuildInstall}
}

// contexts are where commands are used.
func contexts() []discord.InteractionContextType {
	return []discord.InteractionContextType{discord.InteractionContextTypeGuild, discord.InteractionContextTypeBotDM}
}

// ordered puts the required arguments first, as Discord wants.
func ordered(arguments []platform.Argument) []platform.Argument {
	arguments = slices.Clone(arguments[:min(len(arguments), maxOptions)])
	slices.SortStableFunc(arguments, func(a, b platform.Argument) int {
		switch {
		case a.Required == b.Required:
			return 0
		case a.Required:
			return -1
		}
		return 1
	})
	return arguments
}

func option(a platform.Argument) discord.ApplicationCommandOption {
	about, others := described(a.Name, a.About)
	switch a.Kind {
	case platform.Whole:
		low, high := int(math.Max(a.Min, -maxWholeValue)), int(math.Min(a.Max, maxWholeValue))
		return discord.ApplicationCommandOptionInt{
			Name: a.Name, Description: about, DescriptionLocalizations: others, Required: a.Required, MinValue: &low, MaxValue: &high,
		}
	case platform.Fraction:
		low, high := a.Min, a.Max
		return discord.ApplicationCommandOptionFloat{
			Name: a.Name, Description: about, DescriptionLocalizations: others, Required: a.Required, MinValue: &low, MaxValue: &high,
		}
	case platform.Picture:
		return discord.ApplicationCommandOptionAttachment{Name: a.Name, Description: about, DescriptionLocalizations: others, Required: a.Required}
	case platform.Switch:
		return discord.ApplicationCommandOptionBool{Name: a.Name, Description: about, DescriptionLocalizations: others, Required: a.Required}
	case platform.Words:
	}
	words := discord.ApplicationCommandOptionString{Name: a.Name, Description: about, DescriptionLocalizations: others, Required: a.Required}
	if words.Autocomplete = suggested(a); words.Autocomplete {
		return words // Discord takes no choices beside it
	}
	for _, choice := range a.Choices[:min(len(a.Choices), maxChoices)] {
		// A value that is too long can still be written out in a message.
		if len(choice) <= maxAbout {
			words.Choices = append(words.Choices, discord.ApplicationCommandOptionChoiceString{Name: choice, Value: choice})
		}
	}
	return words
}

// suggested reports whether Discord asks for values of an argument while it is filled in:
// those that the fleet knows, or choices that are too many for a list.
func suggested(a platform.Argument) bool { return a.Suggested || len(a.Choices) > maxChoices }

// described returns a description and those in other languages. Discord wants one.
func described(name string, about map[string]string) (string, map[discord.Locale]string) {
	text := platform.Clip(about[""], maxAbout)
	text = cmp.Or(text, name)
	var others map[discord.Locale]string
	for language, other := range about {
		if other == "" || language == "" {
			continue
		}
		for _, l := range localesOf(language) {
			if others == nil {
				others = map[discord.Locale]string{}
			}
			others[l] = platform.Clip(other, maxAbout)
		}
	}
	return text, others
}

// localesOf returns the locales of Discord that are a language of the bridge.
func localesOf(language string) (list []discord.Locale) {
	language = strings.ReplaceAll(language, "_", "-")
	base, _, _ := strings.Cut(language, "-")
	for l := range discord.Locales {
		whole := strings.EqualFold(string(l), language)
		part, _, _ := strings.Cut(string(l), "-")
		if whole || strings.EqualFold(part, base) && strings.EqualFold(base, language) {
			list = append(list, l)
		}
	}
	return list
}

// sameCommands reports whether the registered commands are those that we want.
func sameCommands(there, want []any) bool {
	if len(there) != len(want) {
		return false
	}
	nameOf := func(command any) string {
		fields, _ := command.(map[string]any)
		return fmt.Sprint(fields["type"], fields["name"])
	}
	return !slices.ContainsFunc(want, func(w any) bool {
		at := slices.IndexFunc(there, func(h any) bool { return nameOf(h) == nameOf(w) })
		return at < 0 || !covers(there[at], w)
	})
}

// telling are the fields that make a difference if we do not want them.
func telling() []string {
	return []string{"options", "choices", "autocomplete", "required", "min_value", "max_value", "description_localizations", "name_localizations"}
}

// covers reports whether what is registered says all that we want, and nothing else
// that makes a difference. Discord adds fields of its own.
func covers(there, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := there.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range w {
			if !covers(h[name], value) {
				return false
			}
		}
		return !slices.ContainsFunc(telling(), func(name string) bool { return w[name] == nil && !empty(h[name]) })
	case []any:
		h, ok := there.([]any)
		return ok && slices.EqualFunc(h, w, covers)
	}
	return there == want || empty(there) && empty(want)
}

// empty reports whether a field says nothing.
func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}
