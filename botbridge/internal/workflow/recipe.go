package workflow

import (
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Graphs in pictures come from anybody. To read one takes time that grows with the square of
// its size; real ones have some hundred nodes.
const (
	maxRecipeNodes  = 1000
	maxRecipeInputs = 20_000
)

// Recipe is what the file of a picture says about how it was made, by whatever program.
type Recipe struct {
	Args
	// CFG, Sampler and Scheduler are as the program calls them, "" if unknown.
	CFG       string `json:"cfg,omitempty"`
	Sampler   string `json:"sampler,omitempty"`
	Scheduler string `json:"scheduler,omitempty"`
	// Native means that these are ComfyUI's own names.
	Native bool `json:"native,omitempty"`
}

// ReadRecipe reads what ComfyUI, A1111 and programs like them write into PNG, JPEG and WebP
// files; false if there is nothing.
func ReadRecipe(r io.Reader) (Recipe, bool) {
	texts := embedded(r)
	if graph := texts["prompt"]; strings.HasPrefix(graph, "{") {
		if recipe, ok := ofGraph([]byte(graph)); ok {
			return recipe, true
		}
	}
	return ofInfotext(texts["parameters"])
}

// ofGraph reads a workflow in API format.
func ofGraph(graph []byte) (r Recipe, ok bool) {
	g, err := ParseGraph(graph)
	if err != nil || g.larger(maxRecipeNodes, maxRecipeInputs) {
		return r, false
	}
	c, err := commandOf("picture", Spec{}, g)
	if err != nil {
		return r, false
	}
	r.Native = true
	r.Prompt, r.Negative, r.Model = c.Value(Prompt, Args{}), c.Value(Negative, Args{}), c.Value(Model, Args{})
	r.Seed, err = strconv.ParseUint(c.Value(Seed, Args{}), 10, 64)
	r.SeedGiven = err == nil
	r.Steps, _ = strconv.Atoi(c.Value(Steps, Args{}))
	r.Width, r.Height, _ = pair(c.Value(Size, Args{}), times)
	for _, a := range c.Arguments() {
		switch a.Name {
		case "cfg":
			r.CFG = a.Now()
		case "sampler":
			r.Sampler = a.Now()
		case "scheduler":
			r.Scheduler = a.Now()
		}
	}
	r.bound()
	return r, r.Prompt != "" || r.SeedGiven
}

// setting is one of those in the last line of A1111's text: a name, a colon and a value, which
// may be in quotes.
var setting = regexp.MustCompile(`\s*([\w][\w \-/]*):\s*("(?:\\.|[^\\"])*"|[^,]*)(?:,|$)`)

// ofInfotext reads A1111's text: the prompt, the negative one, and a line of settings that
// begins with the steps.
func ofInfotext(text string) (r Recipe, ok bool) {
	at := strings.LastIndex("\n"+text, "\nSteps: ")
	if at < 0 {
		return r, false
	}
	words, line := text[:at], text[at:]
	prompt, negative, _ := strings.Cut("\n"+words, "\nNegative prompt:")
	r.Prompt, r.Negative = strings.TrimSpace(prompt), strings.TrimSpace(negative)
	for _, m := range setting.FindAllStringSubmatch(line, 100) {
		value := strings.Trim(m[2], `" `)
		switch m[1] {
		case "Steps":
			r.Steps, _ = strconv.Atoi(value)
		case "Seed":
			seed, err := strconv.ParseUint(value, 10, 64)
			r.Seed, r.SeedGiven = seed, err == nil
		case "Size":
			r.Width, r.Height, _ = pair(value, times)
		case "CFG scale":
			r.CFG = value
		case "Sampler":
			r.Sampler = value
		case "Schedule type":
			r.Scheduler = value
		case "Model":
			r.Model = value
		}
	}
	r.bound()
	return r, true
}

// bound cuts what no command takes: the file may say anything.
func (r *Recipe) bound() {
	for text, most := range map[*string]int{&r.Prompt: maxText / 2, &r.Negative: maxText / 2, &r.Model: 200, &r.CFG: 20, &r.Sampler: 60, &r.Scheduler: 60} {
		if runes := []rune(*text); len(runes) > most {
			*text = string(runes[:most])
		}
	}
	if r.Steps < 0 || r.Steps > 10_000 {
		r.Steps = 0
	}
	if r.Width > maxSide || r.Height > maxSide {
		r.Width, r.Height = 0, 0
	}
}

// For returns what of the recipe a command takes.
func (r Recipe) For(c *Command) Args {
	var a Args
	if c.Takes(Prompt) {
		a.Prompt = r.Prompt
	}
	if c.Takes(Negative) {
		a.Negative = r.Negative
	}
	if c.Takes(Seed) && r.SeedGiven && r.Seed <= c.Spec.MaxSeed {
		a.Seed, a.SeedGiven = r.Seed, true
	}
	if c.Takes(Steps) {
		a.Steps = min(r.Steps, c.Spec.MaxSteps)
	}
	if c.Takes(Size) && r.Width > 0 && r.Width <= maxRatio*r.Height && r.Height <= maxRatio*r.Width {
		// A larger picture is made smaller, in the same shape, unless one side would be too short.
		scale := min(1, math.Sqrt(float64(c.Spec.MaxPixels)/float64(r.Width*r.Height)))
		a.Width, a.Height = int(float64(r.Width)*scale)/8*8, int(float64(r.Height)*scale)/8*8
	}
	for name, value := range map[string]string{"cfg": r.CFG, "sampler": r.Sampler, "scheduler": r.Scheduler} {
		if value != "" && c.Knows(name) && (r.Native || name == "cfg") {
			a.own(name, value)
		}
	}
	return a
}
