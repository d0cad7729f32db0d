package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// errUnexpected means that a step did not happen as expected.
var errUnexpected = errors.New("that did not happen")

// scene is a chat in which a script is played. After the first step that does not happen,
// it does nothing more.
type scene struct {
	ctx    context.Context
	person *fakebot.Person
	*transcript
	language string
	err      error
	presses  []press
}

// press is a button that the person has pressed, and what was shown for a moment.
type press struct {
	Label, Toast string
	message      int
	id           string
}

func newScene(ctx context.Context, p *fakebot.Person) *scene {
	return &scene{
		ctx: ctx, person: p, language: p.Language,
		transcript: &transcript{begin: time.Now(), seen: map[int]string{}, toasts: map[string]bool{}},
	}
}

// in returns what fits the language of the chat.
func (c *scene) in(english, russian string) string {
	if c.language == "ru" {
		return russian
	}
	return english
}

// say writes a message and returns its id.
func (c *scene) say(text string) int { return c.send(fakebot.Draft{Text: text}) }

// send sends a message and returns its id.
func (c *scene) send(d fakebot.Draft) int {
	if c.err != nil {
		return 0
	}
	id, _ := c.person.Send(d)
	return id
}

// sees waits for a message of the bot that fits, and returns the last one.
func (c *scene) sees(what string, fits func(fakebot.Message) bool) fakebot.Message {
	ofBot := func(m fakebot.Message) bool { return m.FromBot && fits(m) }
	list := c.wait(what, func(list []fakebot.Message) bool { return slices.ContainsFunc(list, ofBot) })
	m, _ := fakebot.Find(list, ofBot)
	return m
}

// wait waits until the messages of the chat meet a condition.
func (c *scene) wait(what string, until func([]fakebot.Message) bool) []fakebot.Message {
	if c.err != nil {
		return nil
	}
	list, err := c.person.Wait(c.ctx, until)
	if err != nil {
		c.err = fmt.Errorf("%s: %w", what, errUnexpected)
	}
	return list
}

// press presses a button of a message.
func (c *scene) press(m fakebot.Message, label string) {
	if c.err != nil {
		return
	}
	for _, b := range m.Buttons {
		if strings.Contains(b.Label, label) {
			c.show(c.person.Sees()) // before what is done with it
			c.print("Ada", "presses [%s]", b.Label)
			c.presses = append(c.presses, press{Label: b.Label, message: m.ID, id: c.person.Press(m.ID, b.Data)})
			return
		}
	}
	c.err = fmt.Errorf("the button %s: %w", label, errUnexpected)
}

// pay pays an invoice.
func (c *scene) pay(m fakebot.Message) {
	if c.err != nil {
		return
	}
	c.show(c.person.Sees())
	c.print("Ada", "pays %d Stars", m.Invoice.Stars)
	c.person.Pay(m.ID)
}

func says(text string) func(fakebot.Message) bool {
	return func(m fakebot.Message) bool { return strings.Contains(m.Text, text) }
}

// shows is for the picture that answers a message.
func shows(message int) func(fakebot.Message) bool {
	return func(m fakebot.Message) bool { return m.Kind == "photo" && m.ReplyTo == message }
}

// invoices is for the invoice that answers a message.
func invoices(message int) func(fakebot.Message) bool {
	return func(m fakebot.Message) bool { return m.Invoice != nil && m.ReplyTo == message }
}

func offers(label string) func(fakebot.Message) bool {
	return func(m fakebot.Message) bool {
		return slices.ContainsFunc(m.Buttons, func(b fakebot.Button) bool { return strings.Contains(b.Label, label) })
	}
}
