package workflow

import (
	"regexp"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// reader finds out which inputs of a graph a role means.
type reader struct{ *Graph }

// guess finds the inputs that each role most likely means. A node whose title is the name
// of a role, and no other's, is used directly; otherwise the graph is followed upstream
// from all nodes that sample.
func (g reader) guess() map[Role][]Slot {
	found := map[Role][]Slot{}
	for _, r := range Roles() {
		if id, err := g.find(string(r)); err == nil && !g.nodes.Has(string(r)) {
			found[r] = g.slotsOn(r, id)
		}
	}
	titled := map[Role]bool{}
	for r := range found {
		titled[r] = len(found[r]) > 0
	}
	note := func(r Role, slots ...Slot) {
		for _, slot := range slots {
			if !titled[r] && !slices.Contains(found[r], slot) {
				found[r] = append(found[r], slot)
			}
		}
	}
	first := func(r Role, slots ...Slot) {
		if len(found[r]) == 0 {
			note(r, slots...)
		}
	}
	note(Image, g.pictures()...)
	samplers := g.samplers()
	for _, id := range samplers {
		for _, r := range []Role{Prompt, Negative} {
			for _, input := range []string{conditions(r), "guider", "conditioning", "text_embeds"} {
				note(r, g.texts(r, id, input, map[string]bool{})...)
			}
		}
		note(Seed, g.seeds(id)...)
		if steps := g.slotsOn(Steps, g.schedule(id)); len(found[Steps]) == 0 || len(steps) > 0 && g.same(steps[0], found[Steps][0]) {
			note(Steps, steps...)
		}
		first(Model, g.slotsOn(Model, g.upstream(id, []string{"model", "guider"}, func(from string) bool { return g.slotsOn(Model, from) != nil }))...)
		if at := g.upstream(id, []string{"latent_image", "samples", "latent", "latents", "image_embeds"}, g.sized); at != "" {
			first(Size, g.slotsOn(Size, at)...)
			first(Count, g.slotsOn(Count, at)...)
		}
		if len(found[Image]) > 0 {
			first(Strength, g.slotsOn(Strength, g.schedule(id))...)
		}
	}
	g.guessByName(first)
	if len(found[Size]) == 2 {
		note(Size, g.alsoSized(found[Size])...)
	}
	found[Negative] = slices.DeleteFunc(found[Negative], func(s Slot) bool { return slices.Contains(found[Prompt], s) })
	for r := range found {
		if len(found[r]) == 0 {
			delete(found, r)
		}
	}
	return found
}

// guessByName finds what no sampler leads to, by what the classes are called.
func (g reader) guessByName(first func(Role, ...Slot)) {
	sampled := len(g.samplers()) > 0
	for _, id := range g.ids {
		switch class := g.Class(id); {
		case class == "LoadImageMask":
			first(Mask, g.slotsOn(Mask, id)...)
		case strings.HasPrefix(class, "CheckpointLoader"), class == "UNETLoader", class == "UpscaleModelLoader":
			first(Model, g.slotsOn(Model, id)...)
		case strings.HasPrefix(class, "Empty") && (!sampled || g.used(id)):
			first(Size, g.slotsOn(Size, id)...)
			first(Count, g.slotsOn(Count, id)...)
		case strings.Contains(class, "TextEncode"):
			first(Prompt, g.slotsOn(Prompt, id)...)
		}
		seeds := g.seeds(id)
		if first(Seed, seeds...); len(seeds) > 0 {
			first(Prompt, g.slotsOn(Prompt, id)...)
		}
	}
}

// samplers returns the nodes that make something from noise, each after those whose result
// it works on.
func (g reader) samplers() []string {
	var list []string
	before := map[string]int{}
	for _, id := range g.ids {
		if g.samples(id) {
			list = append(list, id)
			before[id] = g.samplersBefore(id, map[string]bool{})
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return before[a] - before[b] })
	return list
}

func (g reader) samples(id string) bool {
	has := func(inputs ...string) bool { return slices.ContainsFunc(inputs, g.inputs(id).Has) }
	return has("seed", "noise_seed", "noise") && slices.ContainsFunc([]string{"positive", "guider", "conditioning", "model", "latent_image"},
		func(input string) bool { return g.linked(id, input) != "" })
}

func (g reader) samplersBefore(id string, seen map[string]bool) (n int) {
	for input := range g.inputs(id).All() {
		if from := g.linked(id, input); from != "" && !seen[from] {
			seen[from] = true
			if n += g.samplersBefore(from, seen); g.samples(from) {
				n++
			}
		}
	}
	return n
}

// seeds returns the seed of a node, or that of the noise that it is given.
func (g reader) seeds(id string) []Slot {
	for _, at := range []string{id, g.linked(id, "noise")} {
		for _, input := range []string{"seed", "noise_seed"} {
			if slot, ok := g.origin(Slot{at, input}, Seed.fits); ok {
				return []Slot{slot}
			}
		}
	}
	return nil
}

// schedule returns the node with the steps of a sampler: itself, or the one that its sigmas
// come from.
func (g reader) schedule(id string) string {
	if g.inputs(id).Has("steps") {
		return id
	}
	if at := g.upstream(id, []string{"sigmas", "sigmas_1"}, func(from string) bool { return g.inputs(from).Has("steps") }); at != "" {
		return at
	}
	return id
}

func (g reader) sized(id string) bool { return len(g.slotsOn(Size, id)) == 2 }

// alsoSized returns the width and height of nodes that have to be told the size as well.
func (g reader) alsoSized(size []Slot) (more []Slot) {
	for _, id := range g.ids {
		if !slices.Contains([]string{"ModelSamplingFlux", "Flux2Scheduler", "CLIPTextEncodeSDXL"}, g.Class(id)) {
			continue
		}
		if also := g.slotsOn(Size, id); len(also) == 2 && g.same(also[0], size[0]) && g.same(also[1], size[1]) && also[0] != size[0] {
			more = append(more, also...)
		}
	}
	return more
}

func (g *Graph) same(a, b Slot) bool {
	return plainValue(g.literal(a.Node, a.Input)) == plainValue(g.literal(b.Node, b.Input))
}

// numberedInput is an input for one of several pictures.
var numberedInput = regexp.MustCompile(`^(images?[._])?image_?[0-9]?$`)

// pictures returns the files of pictures, in the order in which a node with several takes
// them.
func (g reader) pictures() (list []Slot) {
	loads := func(id string) bool {
		class := g.Class(id)
		return strings.HasPrefix(class, "LoadImage") && class != "LoadImageMask" && len(g.slotsOn(Image, id)) == 1
	}
	add := func(id string) {
		if slots := g.slotsOn(Image, id); !slices.Contains(list, slots[0]) {
			list = append(list, slots[0])
		}
	}
	for _, id := range g.ids {
		var inputs []string
		for input := range g.inputs(id).All() {
			if numberedInput.MatchString(input) {
				inputs = append(inputs, input)
			}
		}
		if slices.Sort(inputs); len(inputs) < 2 {
			continue
		}
		for _, input := range inputs {
			if at := g.upstream(id, []string{input}, loads, "image", "pixels", "images"); at != "" {
				add(at)
			}
		}
	}
	for _, id := range g.ids {
		if loads(id) {
			add(id)
		}
	}
	return list
}

// textInputs are groups of inputs with words, the likeliest first. All words of a group are
// the same to a model that reads them with several encoders.
func textInputs(r Role) [][]string {
	return [][]string{
		{"text_g", "text_l"},
		{"clip_l", "clip_g", "t5xxl", "llama"},
		{"text"},
		{"prompt"},
		{"value"},
		{"string"},
		{"tags"},
		{conditions(r) + "_prompt"},
		{conditions(r)},
	}
}

// conditions returns the input of a sampler that the words of a role lead to.
func conditions(r Role) string {
	if r == Negative {
		return "negative"
	}
	return "positive"
}

// joined are the inputs of nodes that put texts together.
var joined = regexp.MustCompile(`^(string|text)_?([a-d]|[1-4])$`)

// texts returns the words that reach an input.
func (g reader) texts(r Role, id, input string, seen map[string]bool) []Slot {
	from := g.linked(id, input)
	if from == "" || seen[from] || r == Negative && g.Class(from) == "ConditioningZeroOut" {
		return nil
	}
	seen[from] = true
	if next := g.branch(from); next != "" {
		return g.texts(r, from, next, seen)
	}
	if slots := g.textsOn(r, from, seen); slots != nil {
		return slots
	}
	for _, next := range []string{input, conditions(r), "guider", "conditioning", "conditioning_1", "conditioning_to", "cond1", "text_embeds"} {
		if slots := g.texts(r, from, next, seen); slots != nil {
			return slots
		}
	}
	return nil
}

// textsOn returns the words of a node, or those that reach it. Of words that are put
// together, those from elsewhere count: the others are the workflow's own.
func (g reader) textsOn(r Role, id string, seen map[string]bool) []Slot {
	is := func(input string) bool { return r.fits(g.literal(id, input)) }
	for _, group := range textInputs(r) {
		var slots []Slot
		for _, input := range group {
			if is(input) {
				slots = append(slots, Slot{id, input})
			} else if input != "positive" && input != "negative" { // those are no words but conditions
				slots = append(slots, g.texts(r, id, input, seen)...)
			}
		}
		if slots != nil {
			return slots
		}
	}
	var own []Slot
	for input := range g.inputs(id).All() {
		if joined.MatchString(input) {
			if slots := g.texts(r, id, input, seen); slots != nil {
				return slots
			}
			if text, _ := g.literal(id, input).(pyjson.String); strings.TrimSpace(string(text)) != "" {
				own = append(own, Slot{id, input})
			}
		}
	}
	return own[:min(1, len(own))]
}
