package workflow

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// About is a line by language. One that is no map is English.
type About map[string]string

// UnmarshalYAML parses the line of each language, or one line.
func (a *About) UnmarshalYAML(unmarshal func(any) error) error {
	var line string
	if unmarshal(&line) == nil {
		*a = About{"en": line}
		return nil
	}
	return unmarshal((*map[string]string)(a))
}

// Spec is a command as bot.yaml describes it.
type Spec struct {
	// Workflow is the file, relative to bot.yaml, in API format.
	Workflow string `yaml:"workflow"`
	// About is one line by language, for /help.
	About About `yaml:"about"`
	// Inputs binds roles to nodes; "-" removes a guess. Roles that are not named
	// are guessed.
	Inputs map[Role]string `yaml:"inputs"`
	// Arguments are further inputs that a message may set, by the names of their flags.
	// "*" is about those that are not named: "-" for none, "all" for all that can be
	// set safely; default: the usual ones, such as cfg.
	Arguments map[string]ArgumentSpec `yaml:"arguments"`
	// Price is how much of the daily share one picture costs. Default: 1.
	Price *int64 `yaml:"price"`
	// Stars is what one picture costs, in the currency of a platform on which people can
	// pay, beyond the daily share, or always without one. Default: 0, nothing is for sale.
	Stars int64 `yaml:"stars"`
	// MaxCount, MaxSteps and MaxPixels bound what a message may ask for.
	// Default: 4, 60 and 2097152 (as 1448 by 1448).
	MaxCount  int `yaml:"max_count"`
	MaxSteps  int `yaml:"max_steps"`
	MaxPixels int `yaml:"max_pixels"`
	// MaxSeed is the largest seed that the workflow accepts. Default: 2^50 - 1,
	// which every client can show.
	MaxSeed uint64 `yaml:"max_seed"`
	// Models are the values of --model. Default: none; the flag is refused.
	Models []string `yaml:"models"`
	// Upscales marks the command for the button "upscale".
	Upscales bool `yaml:"upscales"`
	// Varies marks the command for the buttons V1 to V4: it makes a picture from a
	// picture and words.
	Varies bool `yaml:"varies"`
	// Several is how two to four pictures are shown: "album", or "grid", as one numbered
	// picture. Default: album.
	Several string `yaml:"several"`
	// Texts is false for a command whose texts are not shown, only its files.
	// Default: true.
	Texts *bool `yaml:"texts"`
}

// Command is a workflow that a message can fill in. It is immutable.
type Command struct {
	Name  string
	Spec  Spec
	Price int64

	bindings
	arguments
	styles
}

// bindings say where in a graph what a message says is put.
type bindings struct {
	graph   *Graph
	slots   map[Role][]Slot
	guessed map[Role]bool
}

// NewCommand binds a workflow.
func NewCommand(name string, spec Spec, file []byte) (*Command, error) {
	graph, err := ParseGraph(file)
	if err != nil {
		return nil, fmt.Errorf("workflow: %w", err)
	}
	return commandOf(name, spec, graph)
}

func commandOf(name string, spec Spec, graph *Graph) (_ *Command, err error) {
	if spec.Several != "" && spec.Several != "album" && spec.Several != "grid" {
		return nil, fmt.Errorf("several: %q is neither album nor grid", spec.Several)
	}
	c := &Command{
		Name: name, Spec: spec, Price: 1, bindings: bindings{graph, reader{graph}.guess(), map[Role]bool{}},
		arguments: arguments{in: graph, declared: spec.Arguments},
	}
	for r := range c.slots {
		c.guessed[r] = true
	}
	var guesses []Slot // also those that bot.yaml removes: nothing that is found sets them
	for _, slots := range c.slots {
		guesses = append(guesses, slots...)
	}
	for r, text := range spec.Inputs {
		if !slices.Contains(Roles(), r) {
			return nil, fmt.Errorf("inputs: a message cannot set %q; it can set %v", r, Roles())
		}
		delete(c.guessed, r)
		delete(c.slots, r)
		if text == "-" {
			continue
		}
		if c.slots[r], err = (reader{graph}).bind(r, text); err != nil {
			return nil, fmt.Errorf("inputs: %s: %w", r, err)
		}
	}
	if err := c.bindArguments(c.slots, guesses); err != nil {
		return nil, err
	}
	if spec.Price != nil {
		c.Price = *spec.Price
	}
	c.Spec.MaxCount = cmp.Or(c.Spec.MaxCount, 4)
	c.Spec.MaxSteps = cmp.Or(c.Spec.MaxSteps, 60)
	c.Spec.MaxPixels = cmp.Or(c.Spec.MaxPixels, 2<<20)
	c.Spec.MaxSeed = cmp.Or(c.Spec.MaxSeed, 1<<50-1)
	return c, nil
}

// Grid means that several pictures are shown as one, with numbers.
func (c *Command) Grid() bool { return c.Spec.Several == "grid" }

// Says means that texts that a run makes are shown.
func (c *Command) Says() bool { return c.Spec.Texts == nil || *c.Spec.Texts }

// Takes reports whether messages can set a role.
func (b *bindings) Takes(r Role) bool { return len(b.slots[r]) > 0 }

// Edits means that the command makes something from one picture and words alone.
func (b *bindings) Edits() bool { return b.FromOne() && b.Takes(Prompt) }

// Images returns how many pictures the command needs, not counting a mask.
func (b *bindings) Images() int { return len(b.slots[Image]) }

// FromOne means that the command makes something from one picture, without a mask.
func (b *bindings) FromOne() bool { return b.Images() == 1 && !b.Takes(Mask) }

// Bindings returns where a role is set, and whether that was guessed.
func (b *bindings) Bindings(r Role) (slots []Slot, guessed bool) { return b.slots[r], b.guessed[r] }

// Title returns the name of a node.
func (b *bindings) Title(node string) string { return b.graph.Title(node) }

// Nodes returns the number of nodes, as a measure of progress.
func (b *bindings) Nodes() int { return len(b.graph.ids) }

// Settle checks what a message asks for and fills in the rest: the seed, and the
// size for an aspect ratio.
func (c *Command) Settle(a Args) (Args, error) {
	for r, wished := range map[Role]bool{
		Prompt: a.Prompt != "", Negative: a.Negative != "", Size: a.Width > 0 || a.AspectW > 0, Steps: a.Steps > 0,
		Count: a.Count > 1, Model: a.Model != "", Strength: a.Strength > 0, Seed: a.SeedGiven,
	} {
		if wished && !c.Takes(r) {
			return a, complain("not_taken_"+string(r), "command", c.Name)
		}
	}
	switch {
	case a.Count > c.Spec.MaxCount:
		return a, complain("too_many_pictures", "max", c.Spec.MaxCount)
	case a.Steps > c.Spec.MaxSteps:
		return a, complain("too_many_steps", "max", c.Spec.MaxSteps)
	case a.SeedGiven && a.Seed > c.Spec.MaxSeed:
		return a, complain("seed_too_large", "max", c.Spec.MaxSeed)
	case a.Model != "" && !slices.Contains(c.Spec.Models, a.Model):
		return a, complain("unknown_model", "model", clip(a.Model), "models", c.Spec.Models)
	}
	var err error
	if a.Styles, err = c.settleStyles(a.Styles); err != nil {
		return a, err
	}
	if a.AspectW > 0 {
		a.Width, a.Height = c.shape(a)
		a.AspectW, a.AspectH = 0, 0
	}
	if a.Width > 0 {
		a.Width, a.Height = grid(a.Width), grid(a.Height)
		if a.Width > maxSide || a.Height > maxSide || a.Width*a.Height > c.Spec.MaxPixels {
			return a, complain("too_large", "max", Megapixels(c.Spec.MaxPixels))
		}
	}
	if c.Takes(Seed) && !a.SeedGiven {
		a.Seed = rand.Uint64N(c.Spec.MaxSeed) + 1
	}
	return a, nil
}

// Sizes returns usual sizes that the command may make, as a message writes them; nil if
// it has one of its own.
func (c *Command) Sizes() (list []string) {
	if !c.Takes(Size) {
		return nil
	}
	for _, s := range [][2]int{
		{512, 512}, {768, 512}, {512, 768}, {768, 768}, {1024, 576}, {576, 1024}, {1024, 768}, {768, 1024}, {1024, 1024}, {1216, 832}, {832, 1216}, {1344, 768}, {768, 1344},
	} {
		if s[0]*s[1] <= c.Spec.MaxPixels {
			list = append(list, fmt.Sprintf("%dx%d", s[0], s[1]))
		}
	}
	return list
}

// Megapixels writes a number of pixels for people. It is not rounded up: what is said to be
// allowed is.
func Megapixels(pixels int) string {
	mega := 1e6
	if pixels%(1<<18) == 0 { // such as 1024x1024, which people call one
		mega = 1 << 20
	}
	return strconv.FormatFloat(math.Floor(float64(pixels)/mega*100)/100, 'f', -1, 64)
}

// grid rounds a length to one that models accept: a multiple of eight.
func grid(n int) int { return max(64, (n+4)/8*8) }

// shape returns a size with the requested aspect ratio and about as many pixels as
// the requested size, or the workflow's own.
func (b *bindings) shape(a Args) (width, height int) {
	area := float64(a.Width * a.Height)
	if area == 0 {
		slots := b.slots[Size]
		w, _ := b.graph.literal(slots[0].Node, slots[0].Input).(pyjson.Number)
		h, _ := b.graph.literal(slots[1].Node, slots[1].Input).(pyjson.Number)
		area = w.Float64() * h.Float64()
	}
	ratio := float64(a.AspectW) / float64(a.AspectH)
	height = grid(int(math.Sqrt(area / ratio)))
	return int(math.Round(float64(height) * ratio)), height
}

// Files are the names, at the hub, of the message's files.
type Files struct {
	Images []string
	Mask   string
}

// Fill builds the graph of a request. The args must be settled.
func (c *Command) Fill(a Args, f Files) []byte {
	g, a := c.graph.clone(), c.styled(a)
	put := func(r Role, wished bool, values ...pyjson.Value) {
		if !wished {
			return
		}
		for i, slot := range c.slots[r] {
			g.set(slot, values[i%len(values)])
		}
	}
	put(Prompt, a.Prompt != "", pyjson.String(a.Prompt))
	put(Negative, a.Negative != "", pyjson.String(a.Negative))
	put(Seed, true, pyjson.Number(fmt.Sprint(a.Seed)))
	put(Size, a.Width > 0, pyjson.Int(int64(a.Width)), pyjson.Int(int64(a.Height)))
	if a.Steps > 0 {
		c.handOver(g, a.Steps)
	}
	put(Steps, a.Steps > 0, pyjson.Int(int64(a.Steps)))
	put(Count, a.Count > 0, pyjson.Int(int64(a.Count)))
	put(Model, a.Model != "", pyjson.String(a.Model))
	put(Strength, a.Strength > 0, pyjson.Float(a.Strength))
	for i, slot := range c.slots[Image] {
		if len(f.Images) > 0 {
			g.set(slot, pyjson.String(f.Images[min(i, len(f.Images)-1)]))
		}
	}
	put(Mask, f.Mask != "", pyjson.String(f.Mask))
	c.fillArguments(g, a.Set)
	return g.Bytes()
}

// handOver moves the steps at which one sampler hands over to the next along with their
// number.
func (b *bindings) handOver(g *Graph, steps int) {
	number := func(s Slot) float64 {
		n, _ := b.graph.literal(s.Node, s.Input).(pyjson.Number)
		return n.Float64()
	}
	for _, id := range (reader{b.graph}).samplers() {
		total, ok := b.graph.origin(Slot{id, "steps"}, Steps.fits)
		if !ok || !slices.Contains(b.slots[Steps], total) {
			continue
		}
		for _, input := range []string{"start_at_step", "end_at_step"} {
			at, ok := b.graph.origin(Slot{id, input}, Steps.fits)
			if n := number(at); ok && n > 0 && n <= number(total) {
				g.set(at, pyjson.Int(int64(math.Round(n*float64(steps)/number(total)))))
			}
		}
	}
}

// Notes says, in plain sentences, what was looked for in vain, and what follows from that.
func (c *Command) Notes() (notes []string) {
	if len(reader{c.graph}.samplers()) == 0 {
		return nil
	}
	for _, lack := range []struct {
		role   Role
		effect string
	}{{Prompt, "the words of a message change nothing"}, {Seed, "every picture will be the same"}} {
		if _, said := c.Spec.Inputs[lack.role]; !said && !c.Takes(lack.role) {
			notes = append(notes, fmt.Sprintf("no %s found: %s; set `%s:` under inputs", lack.role, lack.effect, lack.role))
		}
	}
	return notes
}
