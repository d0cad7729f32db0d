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
	{batch, []string{"batch_size", "batch_count", "batch", "amount", "n_iter"}},
	{"length", []string{"length", "frames", "num_frames", "video_frames", "frame_count"}},
}

// batch bounds how many pictures a job makes at once.
const batch = "batch"

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

// maxDepth bounds how far up a graph batches are multiplied.
const maxDepth = 1000

// batch is how many pictures go through a node: what it begins with, or what the largest of
// those brings that it is linked to. A node that repeats multiplies the two.
func (r *reader) batch(id string, depth int) float64 {
	if known, ok := r.batches[id]; ok {
		return known
	}
	r.batches[id] = 1 // of a cycle, which no server runs
	node := r.nodes.Object(id)
	own, above := 1.0, 1.0
	for input, value := range node.Object("inputs").All() {
		if link, ok := value.(pyjson.Array); ok && len(link) == 2 && depth < maxDepth {
			if from, ok := link[0].(pyjson.String); ok && r.nodes.Has(string(from)) {
				above = max(above, r.batch(string(from), depth+1))
			}
		}
		if bound, ok := boundOf(input); ok && bound == batch {
			if n, known := number(r.nodes, value, 0); known {
				own *= max(n, 1)
			}
		}
	}
	total := max(own, above)
	if strings.Contains(strings.ToLower(node.String("class_type")), "repeat") {
		total = own * above
	}
	r.batches[id] = total
	return total
}

// batchInput is the first input that is about a batch, empty for none.
func batchInput(inputs *pyjson.Object) string {
	for input := range inputs.All() {
		if bound, ok := boundOf(input); ok && bound == batch {
			return input
		}
	}
	return ""
}
