package fakediscord

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"unicode/utf16"
)

// Form is a modal as a person sees it. Data is its custom id.
type Form struct {
	Title, Data string
	Fields      []Field

	in *interaction // what it answers
}

// Field is a text of a form.
type Field struct {
	Name, Label, Value string
	Long, Required     bool

	least, most int // its length in UTF-16 units
}

// maxFields is how many fields a form has at most.
const maxFields = 5

// formOf reads a form that answers an interaction.
func formOf(in *interaction, text []byte) (*Form, *refusal) {
	var m struct {
		CustomID   string `json:"custom_id"`
		Title      string `json:"title"`
		Components []struct {
			Type      int    `json:"type"`
			Label     string `json:"label"`
			Component struct {
				Type     int    `json:"type"`
				CustomID string `json:"custom_id"`
				Style    int    `json:"style"`
				Value    string `json:"value"`
				Required *bool  `json:"required"`
				Least    int    `json:"min_length"`
				Most     *int   `json:"max_length"`
			} `json:"component"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, invalidForm("%v", err)
	}
	switch {
	case in.kind != 2 && in.kind != 3:
		return nil, refuse(http.StatusBadRequest, 50035, "Invalid Form Body: this interaction opens no modal")
	case m.CustomID == "", m.Title == "", len(m.Components) == 0, len(m.Components) > maxFields:
		return nil, invalidForm("a modal has a custom_id, a title, and up to %d components", maxFields)
	}
	form, seen := &Form{Title: m.Title, Data: m.CustomID, in: in}, map[string]bool{}
	for _, c := range m.Components {
		part := c.Component
		f := Field{Name: part.CustomID, Label: c.Label, Value: part.Value, Long: part.Style == 2, Required: part.Required == nil || *part.Required, least: part.Least, most: 4000}
		if part.Most != nil {
			f.most = *part.Most
		}
		if c.Type != 18 || part.Type != 4 || f.Label == "" || f.Name == "" || seen[f.Name] || lengthOf(f.Value) > f.most {
			return nil, invalidForm("components: %+v", c)
		}
		seen[f.Name] = true
		form.Fields = append(form.Fields, f)
	}
	return form, nil
}

func lengthOf(text string) int { return len(utf16.Encode([]rune(text))) }

// Form waits for the form that an interaction opens.
func (p *Person) Form(ctx context.Context, interaction string) (Form, error) {
	var form Form
	err := p.f.await(ctx, func() bool {
		for _, in := range p.f.waiting {
			if in.id == interaction && in.form != nil {
				form = *in.form
				return true
			}
		}
		return false
	})
	return form, err
}

// Submit sends a form and returns the interaction's id. What is not named stays as it is.
func (p *Person) Submit(form Form, filled map[string]string) (string, error) {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	var parts []any
	for i, field := range form.Fields {
		value, ok := filled[field.Name]
		if !ok {
			value = field.Value
		}
		if n := lengthOf(value); n > field.most || n < field.least || n == 0 && field.Required {
			return "", fmt.Errorf("%s cannot be %q", field.Label, value)
		}
		parts = append(parts, map[string]any{"type": 18, "id": 2*i + 1, "component": map[string]any{
			"type": 4, "id": 2*i + 2, "custom_id": field.Name, "value": value,
		}})
	}
	in := p.interaction(5)
	in.answer = form.in.answer // the message with the button that opened it
	f.emit("INTERACTION_CREATE", p.wire(in, map[string]any{"custom_id": form.Data, "components": parts}, in.answer))
	return in.id, nil
}
