package config

import (
	"fmt"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
)

// Payments is the section of that name.
type Payments struct {
	// Contact is whom people write to about payments, such as @name or an address; the bot
	// shows it.
	Contact string `yaml:"contact"`
}

// maxContact bounds it, in bytes.
const maxContact = 500

// Sells reports whether any command has a price.
func (c *Config) Sells() bool {
	return slices.ContainsFunc(c.Commands, func(k Command) bool { return k.Stars > 0 })
}

// Contact returns whom people write to about payments, "" if nothing is for sale.
func (c *Config) Contact() string {
	if c.Payments == nil || !c.Sells() {
		return ""
	}
	return c.Payments.Contact
}

// paymentProblems are about prices. How large one may be is for the platforms to say.
func (c *Config) paymentProblems() (list []error) {
	add := func(format string, args ...any) { list = append(list, fmt.Errorf(format, args...)) }
	for _, command := range c.Commands {
		if command.Stars < 0 {
			add("command %s: stars: %d is negative", command.Name, command.Stars)
		}
		if c.Sells() && slices.Contains(conversation.Selling(), command.Name) {
			add("command %s: once anything costs stars, the bridge has a command of that name itself", command.Name)
		}
	}
	contact := ""
	if c.Payments != nil {
		contact = c.Payments.Contact
	}
	switch {
	case len(contact) > maxContact:
		add("payments: contact: it has %d bytes; at most %d are possible", len(contact), maxContact)
	case c.Payments != nil && !c.Sells():
		add("payments: no command has a price in stars")
	case !c.Sells():
		return list
	case contact == "":
		add("payments: contact: name somebody people can write to about a payment; selling for stars requires it")
	}
	if c.Sells() && c.Terms == nil {
		add("terms: missing; selling for stars requires terms that people can read")
	}
	return list
}
