package hints

import (
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// maxName bounds the names that are kept of a graph, in bytes.
	maxName = 200
	// maxNodes bounds the graphs of which is known what only some outputs need.
	maxNodes = 1000
)

// modelSuffixes end the names of model files.
var modelSuffixes = []string{".safetensors", ".ckpt", ".pt", ".pth", ".gguf", ".sft", ".bin"}

// distilled are words in the names of models that were made to need few steps.
var distilled = []string{"lightning", "turbo", "hyper-sd", "hyper_sd", "lcm", "dmd2", "schnell", "lightx2v", "4step", "8step", "4-step", "8-step"}

// Graph is the little of a graph that hints need.
type Graph struct {
	// Model is the first model file that it names, empty if it names none.
	Model string

	// distilled is the first model that was made for few steps, and steps is the most that a sampler
	// takes.
	distilled string
	steps     int64
}

// Read reads a graph, which may be nil.
func Read(graph *pyjson.Object) (g Graph) {
	for id := range graph.All() {
		inputs := graph.Object(id).Object("inputs")
		for key, v := range inputs.All() {
			name := inputs.String(key)
			if key == "steps" {
				n, _ := v.(pyjson.Number)
				count, _ := strconv.ParseInt(string(n), 10, 64)
				g.steps = max(g.steps, count)
			}
			if len(name) > maxName || !slices.ContainsFunc(modelSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) }) {
				continue
			}
			if g.Model == "" {
				g.Model = name
			}
			lower := strings.ToLower(name)
			if g.distilled == "" && slices.ContainsFunc(distilled, func(word string) bool { return strings.Contains(lower, word) }) {
				g.distilled = name
			}
		}
	}
	return g
}

// base is the name of a model file without folders and ending.
func base(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	return strings.TrimSuffix(name, name[max(strings.LastIndexByte(name, '.'), 0):])
}

// OnlyFor returns the classes of whose nodes in a graph all are needed by some outputs, and none by
// the others.
func OnlyFor(graph *pyjson.Object, some, others []string) (classes []string) {
	if graph.Len() > maxNodes {
		return nil
	}
	needed, kept := map[string]bool{}, map[string]bool{}
	needs(graph, some, needed)
	needs(graph, others, kept)
	elsewhere := map[string]bool{}
	for id := range graph.All() {
		if class := graph.Object(id).String("class_type"); !needed[id] || kept[id] {
			elsewhere[class] = true
		} else if !slices.Contains(classes, class) {
			classes = append(classes, class)
		}
	}
	return slices.DeleteFunc(classes, func(class string) bool { return elsewhere[class] })
}

// needs notes nodes and all that they need.
func needs(graph *pyjson.Object, ids []string, seen map[string]bool) {
	for todo := slices.Clone(ids); len(todo) > 0; {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[id] || !graph.Has(id) {
			continue
		}
		seen[id] = true
		for _, v := range graph.Object(id).Object("inputs").All() {
			if link, _ := v.(pyjson.Array); len(link) == 2 {
				if from, ok := link[0].(pyjson.String); ok {
					todo = append(todo, string(from))
				}
			}
		}
	}
}
