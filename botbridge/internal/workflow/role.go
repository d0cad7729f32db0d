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

// usual returns the inputs that a role means on a node, the likeliest first.
func usual(r Role) []string {
	switch r {
	case Prompt, Negative:
		return []string{"text", "prompt", "value", "string", "text_g", "tags"}
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

// bind parses what bot.yaml says of a role: a node by id or title, optionally with
// an input after a dot; a size may name two, separated by a comma.
func (g *Graph) bind(r Role, text string) ([]Slot, error) {
	var slots []Slot
	for part := range strings.SplitSeq(text, ",") {
		found, err := g.bindOne(r, strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		slots = append(slots, found...)
	}
	if r == Size && len(slots) != 2 || r != Size && len(slots) != 1 {
		return nil, fmt.Errorf("%q names %d inputs", text, len(slots))
	}
	return slots, nil
}

func (g *Graph) bindOne(r Role, text string) ([]Slot, error) {
	node, err := g.find(text)
	if err != nil {
		name, input, dotted := cutLast(text)
		if !dotted {
			return nil, err
		}
		if node, err = g.find(name); err != nil {
			return nil, err
		}
		if !r.fits(g.literal(node, input)) {
			return nil, fmt.Errorf("input %q of node %s (%s) cannot hold a %s", input, node, g.Title(node), r)
		}
		return []Slot{{node, input}}, nil
	}
	slots := g.slotsOn(r, node)
	if slots == nil {
		return nil, fmt.Errorf("node %s (%s) has no input for a %s; name it as %s.INPUT", node, g.Title(node), r, node)
	}
	return slots, nil
}

// slotsOn returns the inputs of a node that a role usually means.
func (g *Graph) slotsOn(r Role, node string) []Slot {
	var slots []Slot
	for _, input := range usual(r) {
		if !r.fits(g.literal(node, input)) {
			continue
		}
		if slots = append(slots, Slot{node, input}); r != Size || len(slots) == 2 {
			return slots
		}
	}
	return nil
}

func cutLast(text string) (before, after string, found bool) {
	at := strings.LastIndexByte(text, '.')
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+1:], true
}
