package rules

import (
	"math"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Bounds are what [Rules.Max] can bound, and the inputs that each is about: of this name, or
// ending with "_" and this name.
var bounds = [...]struct {
	word   string
	inputs []string
}{
	{"width", []string{"width"}},
	{"height", []string{"height"}},
	{"steps", []string{"steps"}},
	{"batch", []string{"batch_size", "batch_count", "batch", "amount", "n_iter"}},
	{"length", []string{"length", "frames", "num_frames", "video_frames", "frame_count"}},
}

// Bounds are the words of [Rules.Max].
func Bounds() []string {
	words := make([]string, len(bounds))
	for n, b := range bounds {
		words[n] = b.word
	}
	return words
}

// boundOf says what bounds an input.
func boundOf(input string) (word string, ok bool) {
	input = strings.ReplaceAll(strings.ToLower(input), ".", "_") // of a group of inputs
	for _, b := range bounds {
		for _, name := range b.inputs {
			if input == name || strings.HasSuffix(input, "_"+name) {
				return b.word, true
			}
		}
	}
	return "", false
}

// maxLinks is how many links are followed to a number.
const maxLinks = 20

// number is the number that an input will have when it runs, as Python converts it; known is
// false if that cannot be told before.
func number(nodes *pyjson.Object, value pyjson.Value, links int) (n float64, known bool) {
	switch v := value.(type) {
	case nil, pyjson.Null, pyjson.Bool: // at most 1
		return 0, true
	case pyjson.Number:
		n = v.Float64()
		return n, !math.IsNaN(n)
	case pyjson.String:
		n, err := strconv.ParseFloat(strings.TrimSpace(string(v)), 64)
		return n, err == nil && !math.IsNaN(n)
	case pyjson.Array:
		return linked(nodes, v, links)
	}
	return 0, false
}

// linked is the number that comes through a link, if it comes from a primitive node.
func linked(nodes *pyjson.Object, link pyjson.Array, links int) (n float64, known bool) {
	if len(link) != 2 || links >= maxLinks {
		return 0, false
	}
	id, _ := link[0].(pyjson.String)
	node := nodes.Object(string(id))
	switch node.String("class_type") {
	case "PrimitiveInt", "PrimitiveFloat", "PrimitiveNode", "Reroute":
	default:
		return 0, false
	}
	// ComfyUI ignores inputs that a class does not have, so only one counts.
	inputs := node.Object("inputs")
	for _, name := range []string{"value", ""} {
		if inputs.Has(name) {
			value, _ := inputs.Get(name)
			return number(nodes, value, links+1)
		}
	}
	return 0, false
}
