package discord

import (
	"slices"

	"github.com/disgoorg/disgo/discord"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// messageCommand is a command in the menu of a message ("Apps"). Discord knows it by its
// name, which is what people see.
func messageCommand(c Command) discord.MessageCommandCreate {
	name, others := described(c.Name, c.About)
	for l, other := range others {
		others[l] = platform.Clip(other, maxCommandName)
	}
	return discord.MessageCommandCreate{
		Name: platform.Clip(name, maxCommandName), NameLocalizations: others, IntegrationTypes: installed(), Contexts: contexts(),
	}
}

// used returns the command that an interaction uses, nil if it is none of ours.
func (d *receiver) used(in *interaction) *Command {
	at := slices.IndexFunc(d.o.Commands, func(c Command) bool {
		if in.Data.Type == discord.ApplicationCommandTypeMessage {
			return c.OnMessage && messageCommand(c).Name == in.Data.Name
		}
		return !c.OnMessage && c.Name == in.Data.Name
	})
	if at < 0 {
		return nil
	}
	return &d.o.Commands[at]
}

// onMessage writes a command that is used on a message as people write it in an answer.
func (in *interaction) onMessage(c *Command) platform.Message {
	target := in.Data.Resolved.Messages[in.Data.Target]
	target.ID = in.Data.Target
	to := target.message()
	return platform.Message{Text: "/" + c.Name, ReplyTo: &to}
}
