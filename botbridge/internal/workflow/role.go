package workflow

import (
	"fmt"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Role is what a message can set.
type Role string

// The roles. Size is two inputs, width and height in pixels.
const (
	Prompt   Role = "prompt"
	Negative Role = "negative"
	Seed     Role = "seed"
	Size     Role = "size"
	Steps    Role = "steps"
	Count    Role = "count"
	Model    Role = "model"
	Image    Role = "image"
	Mask     Role = "mask"
	Strength Role = "strength"
)

// Roles lists all roles, in the order in which users are told of them.
func Roles() []Role {
	return []Role{Prompt, Negative, Image, Mask, Size, Count, Steps, Strength, Model, Seed}
}

// usual returns the inputs that a role means on a node, the likeliest first. For words, see
// textInputs.
func usual(r Role) []string {
	switch r {
	case Seed:
		return []string{"seed", "noise_seed", "nonce", "value"}
	case Size:
		return []string{"width", "height"}
	case Steps:
		return []string{"steps", "value"}
	case Count:
		return []string{"batch_size", "amount", "value"}
	case Model:
		return []string{"ckpt_name", "unet_name", "model_name", "value"}
	case Image:
		return []string{"image", "file", "video", "audio"}
	case Mask:
		return []string{"image", "mask"}
	case Strength:
		return []string{"denoise", "strength", "value"}
	case Prompt, Negative:
	}
	return nil
}

// text means that a role is a string in the graph; the others are numbers.
func (r Role) text() bool {
	switch r {
	case Prompt, Negative, Model, Image, Mask:
		return true
	default:
		return false
	}
}

// fits reports whether a literal can hold a role.
func (r Role) fits(value pyjson.Value) bool {
	switch value.(type) {
	case pyjson.String:
		return r.text()
	case pyjson.Number:
		return !r.text()
	}
	return false
}

// Slot is one input of one node.
type Slot struct{ Node, Input string }

func (s Slot) String() string { return s.Node + "." + s.Input }

// bind parses what bot.yaml says of a role: nodes by id or title, optionally with an input
// after a dot, separated by commas. Words, seeds and steps go to all of them; pictures go to
// one each, in order. A size is width and height, perhaps of several nodes.
func (g reader) bind(r Role, text string) ([]Slot, error) {
	parts := strings.Split(text, ",")
	if _, err := g.find(text); err == nil {
		parts = []string{text}
	}
	var slots []Slot
	for _, part := range parts {
		found, err := g.bindOne(r, strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		slots = append(slots, found...)
	}
	if r == Size && len(slots)%2 != 0 {
		return nil, fmt.Errorf("%q names %d inputs; a size is a width and a height", text, len(slots))
	}
	return slots, nil
}

func (g reader) bindOne(r Role, text string) ([]Slot, error) {
	node, err := g.find(text)
	if err != nil {
		name, input, dotted := cutLast(text)
		if !dotted {
			return nil, err
		}
		if node, err = g.find(name); err != nil {
			return nil, err
		}
		slot, ok := g.origin(Slot{node, input}, r.fits)
		if slots := g.texts(r, node, input, map[string]bool{}); slots != nil && (r == Prompt || r == Negative) {
			return slots, nil
		}
		if !ok {
			return nil, fmt.Errorf("input %q of node %s (%s) cannot hold a %s", input, node, g.Title(node), r)
		}
		return []Slot{slot}, nil
	}
	slots := g.slotsOn(r, node)
	if slots == nil {
		return nil, fmt.Errorf("node %s (%s) has no input for a %s; name it as %s.INPUT", node, g.Title(node), r, node)
	}
	return slots, nil
}

// slotsOn returns the inputs of a node that a role usually means, or where their values come
// from.
func (g reader) slotsOn(r Role, node string) []Slot {
	if r == Prompt || r == Negative {
		return g.textsOn(r, node, map[string]bool{node: true})
	}
	var slots []Slot
	for _, input := range usual(r) {
		slot, ok := g.origin(Slot{node, input}, r.fits)
		if !ok {
			continue
		}
		if slots = append(slots, slot); r != Size {
			return slots
		}
	}
	if len(slots) == 1 || len(slots) == 2 && slots[0] == slots[1] {
		return nil // half a size, or the side of a square
	}
	return slots
}

func cutLast(text string) (before, after string, found bool) {
	at := strings.LastIndexByte(text, '.')
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+1:], true
}
