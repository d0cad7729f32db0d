package resultcache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Subject is a prompt as far as its result depends on it.
type Subject struct {
	// Key is the same for prompts that have the same result as long as the models are the same.
	Key string `json:"key"`
	// Models are the files that it loads, and Classes those of its nodes that must be ComfyUI's
	// own. Both are sorted.
	Models  []Model  `json:"models,omitempty"`
	Classes []string `json:"classes"`
	// Nodes are the ids of the nodes that it needs, sorted.
	Nodes []string `json:"nodes"`
	// Kept says that its result is given to equal prompts. Otherwise it is only noted that there was
	// one.
	Kept bool `json:"kept,omitempty"`
}

// Model is a model file, as the models listing of an instance calls it.
type Model struct {
	Folder string `json:"folder"`
	Name   string `json:"name"`
}

const (
	// largest is the largest prompt that is looked at, in nodes: those that repeat are small.
	largest = 1000
	// longest is the longest literal, in bytes.
	longest = 256 << 10
)

// Of returns what the result of a prompt depends on; false if that may be more than can be known.
// outputs are the ids of the output nodes that are to run, and inputs the SHA-256 of the input files
// by the id of the node that reads them.
func Of(graph pyjson.Value, outputs []string, inputs map[string]string) (Subject, bool) {
	nodes, ok := graph.(*pyjson.Object)
	if !ok || len(outputs) == 0 {
		return Subject{}, false
	}
	w := walk{nodes: nodes, inputs: inputs, seen: map[string]bool{}, classes: map[string]bool{}, models: map[Model]bool{}}
	if !w.from(outputs) {
		return Subject{}, false
	}
	s := Subject{Nodes: slices.Sorted(maps.Keys(w.seen)), Classes: slices.Sorted(maps.Keys(w.classes))}
	s.Models = slices.SortedFunc(maps.Keys(w.models), func(a, b Model) int {
		return strings.Compare(a.Folder+"/"+a.Name, b.Folder+"/"+b.Name)
	})
	h := sha256.New()
	for _, id := range s.Nodes {
		w.write(h, id)
	}
	fmt.Fprintf(h, "%q", slices.Sorted(slices.Values(outputs)))
	s.Key = hex.EncodeToString(h.Sum(nil)[:16])
	return s, true
}

// walk visits the nodes that outputs need.
type walk struct {
	nodes  *pyjson.Object
	inputs map[string]string

	seen, classes map[string]bool
	models        map[Model]bool
}

// from visits nodes and all that they need. It returns false at the first that is not repeatable.
func (w *walk) from(ids []string) bool {
	for todo := slices.Clone(ids); len(todo) > 0; {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if w.seen[id] {
			continue
		}
		if w.seen[id] = true; len(w.seen) > largest || !w.node(id) {
			return false
		}
		for _, v := range w.nodes.Object(id).Object("inputs").All() {
			if from, is := link(v); is {
				todo = append(todo, from)
			}
		}
	}
	return true
}

// node looks at one node.
func (w *walk) node(id string) bool {
	class, inputs := w.nodes.Object(id).String("class_type"), w.nodes.Object(id).Object("inputs")
	if class == "" || inputs == nil {
		return false
	}
	if w.classes[class] = true; !Repeatable(class, inputs) {
		return false
	}
	for name, folder := range folders(class) {
		file := inputs.String(name)
		if file == "" {
			return false // a link: nobody knows which file
		}
		w.models[Model{folder, strings.ReplaceAll(file, `\`, "/")}] = true
	}
	if reads(class) != "" && w.inputs[id] == "" {
		return false
	}
	for _, v := range inputs.All() {
		if text, is := v.(pyjson.String); is && (len(text) > longest || strings.Contains(string(text), "embedding:")) {
			return false // an embedding is a model file that no input names
		}
	}
	return true
}

// write adds a node to the hash of all.
func (w *walk) write(h hash.Hash, id string) {
	n := w.nodes.Object(id)
	fmt.Fprintf(h, "%q %q %q\n", id, n.String("class_type"), w.inputs[id])
	inputs := n.Object("inputs")
	for _, name := range slices.Sorted(slices.Values(inputs.Keys())) {
		if name == reads(n.String("class_type")) {
			continue // the file's content counts, not its name
		}
		v, _ := inputs.Get(name)
		fmt.Fprintf(h, "%q %s\n", name, pyjson.Marshal(v))
	}
}

// link returns the node that an input comes from.
func link(v pyjson.Value) (id string, is bool) {
	list, _ := v.(pyjson.Array)
	if len(list) != 2 {
		return "", false
	}
	from, is := list[0].(pyjson.String)
	return string(from), is
}

// Encode writes a subject for the body of a job.
func (s Subject) Encode() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		return nil // texts only: that cannot fail
	}
	return text
}

// Decode reads what Encode has written; false for anything else.
func Decode(text []byte) (s Subject, ok bool) {
	return s, json.Unmarshal(text, &s) == nil && s.Key != ""
}
