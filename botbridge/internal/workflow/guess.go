package workflow

import (
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// guess finds the inputs that each role most likely means. A node whose title is
// the name of a role is used directly; otherwise the graph is followed from the
// node that samples.
func (g *Graph) guess() map[Role][]Slot {
	found := map[Role][]Slot{}
	note := func(r Role, node string) {
		if _, known := found[r]; known || node == "" {
			return
		}
		if slots := g.slotsOn(r, node); slots != nil {
			found[r] = slots
		}
	}
	for _, id := range g.ids {
		for _, r := range Roles() {
			if strings.EqualFold(g.Title(id), string(r)) {
				note(r, id)
			}
		}
	}
	for _, id := range g.ids {
		switch class := g.Class(id); {
		case class == "LoadImageMask":
			note(Mask, id)
		case strings.HasPrefix(class, "LoadImage"):
			note(Image, id)
		case strings.HasPrefix(class, "CheckpointLoader"), class == "UNETLoader", class == "UpscaleModelLoader":
			note(Model, id)
		case strings.HasPrefix(class, "Empty"):
			note(Size, id)
			note(Count, id)
		}
	}
	for _, id := range g.ids {
		if !g.samples(id) {
			continue
		}
		note(Seed, id)
		note(Steps, id)
		note(Prompt, g.textOf(id, "positive", 0))
		note(Negative, g.textOf(id, "negative", 0))
		if found[Image] != nil {
			note(Strength, id)
		}
	}
	for _, id := range g.ids {
		if strings.Contains(g.Class(id), "TextEncode") && found[Negative] == nil {
			note(Prompt, id)
		}
		if strings.Contains(g.Class(id), "Scheduler") {
			note(Steps, id)
		}
		if strings.Contains(g.Class(id), "Noise") {
			note(Seed, id)
		}
	}
	if same(found[Prompt], found[Negative]) {
		delete(found, Negative)
	}
	return found
}

func same(a, b []Slot) bool { return len(a) == 1 && len(b) == 1 && a[0] == b[0] }

// samples reports whether a node makes a picture from conditions.
func (g *Graph) samples(id string) bool {
	return g.linked(id, "positive") != "" || strings.Contains(g.Class(id), "Sampler") || strings.Contains(g.Class(id), "Guider")
}

// maxHops bounds the distance from a sampler to its text.
const maxHops = 16

// textOf follows an input upstream to the node that contains a text.
func (g *Graph) textOf(id, input string, hops int) string {
	from := g.linked(id, input)
	if from == "" || hops == maxHops {
		return ""
	}
	for _, name := range usual(Prompt) {
		if _, ok := g.literal(from, name).(pyjson.String); ok {
			return from
		}
	}
	for _, next := range []string{"text", "prompt", input, "conditioning", "conditioning_1", "conditioning_to", "value"} {
		if found := g.textOf(from, next, hops+1); found != "" {
			return found
		}
	}
	return ""
}
