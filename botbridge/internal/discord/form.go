package discord

import (
	"context"
	"time"

	"github.com/disgoorg/disgo/discord"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// formPatience is how long what is in a form already is waited for: the form must be the
// first answer to an interaction, which leaves no time for slow work.
const formPatience = time.Second

// What Discord shows as a form. disgo has only its older shape, without labels of their
// own.
type (
	modal struct {
		CustomID   string       `json:"custom_id"`
		Title      string       `json:"title"`
		Components []modalLabel `json:"components"`
	}
	modalLabel struct {
		Type      int       `json:"type"`
		Label     string    `json:"label"`
		Component modalText `json:"component"`
	}
	modalText struct {
		Type      discord.ComponentType  `json:"type"`
		CustomID  string                 `json:"custom_id"`
		Style     discord.TextInputStyle `json:"style"`
		Value     string                 `json:"value,omitempty"`
		Required  bool                   `json:"required"`
		MaxLength int                    `json:"max_length"`
	}
)

// componentLabel is the type of a component that disgo does not know.
const componentLabel = 18

// opens answers an interaction with a form and returns true, if it opens one. If that fails,
// it is handled like others, and asks in words.
func (d *receiver) opens(ctx context.Context, in *interaction) bool {
	onMessage := in.Type == discord.InteractionTypeApplicationCommand && in.Data.Type == discord.ApplicationCommandTypeMessage
	if d.o.Form == nil || in.Type != discord.InteractionTypeComponent && !onMessage {
		return false
	}
	at := ""
	if in.Message != nil {
		at = in.Message.ID
	}
	asking, cancel := context.WithTimeout(ctx, formPatience)
	form := d.o.Form(asking, d.event(in, at))
	cancel()
	if form == nil || len(form.Data) > maxCustomID || len(form.Fields) == 0 {
		return false
	}
	err := d.defers(ctx, in, discord.InteractionResponseTypeModal, modalOf(form), nil)
	if err != nil && codeOf(err) != codeAcknowledged { // else the first attempt had worked
		d.o.Logger.Debug("cannot show a form", "error", err)
		return false
	}
	return true
}

func modalOf(form *platform.Form) modal {
	m := modal{CustomID: form.Data, Title: platform.Clip(form.Title, maxTitle)}
	for _, f := range form.Fields[:min(len(form.Fields), maxFields)] {
		text := modalText{
			Type: discord.ComponentTypeTextInput, CustomID: f.Name, Style: discord.TextInputStyleShort, Required: f.Required, MaxLength: maxFilled,
		}
		if f.Long {
			text.Style = discord.TextInputStyleParagraph
		}
		if platform.Units(f.Value) <= maxFilled {
			text.Value = f.Value
		}
		m.Components = append(m.Components, modalLabel{componentLabel, platform.Clip(f.Label, maxTitle), text})
	}
	return m
}

// part is a component of a form as it comes back: a text, or what it is in.
type part struct {
	Type       discord.ComponentType `json:"type"`
	CustomID   string                `json:"custom_id"`
	Value      string                `json:"value"`
	Component  *part                 `json:"component"`
	Components []part                `json:"components"`
}

// filledIn returns the texts of a form by their names.
func filledIn(parts []part) map[string]string {
	texts := map[string]string{}
	for _, p := range parts[:min(len(parts), maxFields)] {
		inside := p.Components
		if p.Component != nil {
			inside = append(inside, *p.Component)
		}
		for _, text := range inside {
			if text.Type == discord.ComponentTypeTextInput && len(texts) < maxFields {
				texts[text.CustomID] = text.Value
			}
		}
	}
	return texts
}
