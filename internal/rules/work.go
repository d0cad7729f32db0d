package rules

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Work is what a job will have a server do, as that server will read it, in the order of the
// job's nodes. Every dialect ends in a graph, and every graph in this one form, so that a rule
// means the same in all of them.
type Work []Claim

// Claim is one thing that a job asks for.
type Claim struct {
	// Node and Input are where in the graph, Within where inside an input that is JSON.
	Node, Input string
	Within      []string
	// About is what is asked for: aboutClass, aboutModel, aboutMember or a word of [Bounds].
	About string
	// Name is the class or the model as the job names it.
	Name string
	// Files are the files that Name may stand for, if that is known.
	Files []string
	// Doubtful means that the text may be no name at all: it counts only if it is denied.
	Doubtful bool
	// Value is the number.
	Value float64
	// Unknown says why the hub cannot tell the model or the number, or why a member is not
	// accepted; empty if there is nothing to say.
	Unknown string
}

// What a claim can be about, besides the words of [Bounds].
const (
	aboutClass  = "class_type"
	aboutModel  = "model"
	aboutMember = "a1111_allow"
)

// Names are the options of an input of a class, over all servers.
type Names func(class, input string) []string

// Dialect is what must be known beside a graph to read it.
type Dialect struct {
	// Open are patterns of what passes unread in A1111's requests: members, settings, scripts.
	Open []string
	// Names are those of files. Default: none are known.
	Names Names
}

// Read reads what a graph has a server do.
func (d Dialect) Read(graph pyjson.Value) Work {
	nodes, _ := graph.(*pyjson.Object)
	if d.Names == nil {
		d.Names = func(string, string) []string { return nil }
	}
	r := &reader{nodes: nodes, Dialect: d, batches: map[string]float64{}}
	for id := range nodes.All() {
		r.node(id)
	}
	return r.work
}

// Asks reports whether a graph has a request of A1111's, of which not all may be sent even where
// there are no rules.
func Asks(graph pyjson.Value) bool {
	nodes, _ := graph.(*pyjson.Object)
	for id := range nodes.All() {
		if a1111.Path(nodes.Object(id).String("class_type")) != "" {
			return true
		}
	}
	return false
}

// reader reads a graph.
type reader struct {
	Dialect
	nodes *pyjson.Object
	// batches are the results of batch.
	batches map[string]float64
	// at is where the reader is.
	at   Claim
	work Work
}

func (r *reader) add(c Claim) {
	c.Node, c.Input, c.Within = r.at.Node, r.at.Input, append(slices.Clip(r.at.Within), c.Within...)
	r.work = append(r.work, c)
}

func (r *reader) node(id string) {
	node := r.nodes.Object(id)
	class, inputs := node.String("class_type"), node.Object("inputs")
	r.at = Claim{Node: id}
	r.add(Claim{About: aboutClass, Name: class})
	for input, value := range inputs.All() {
		r.at = Claim{Node: id, Input: input}
		switch {
		case class == a1111.ClassCheckpoint && input == a1111.InputCheckpoint:
			r.checkpoint(a1111.OptionCheckpoint, value)
		case class == a1111.ClassLora && input == a1111.InputLora:
			text, _ := value.(pyjson.String)
			r.lora(string(text))
		case a1111.Path(class) != "":
		default:
			r.input(input, value)
		}
	}
	if a1111.Path(class) != "" {
		r.request(id, class, inputs)
		return
	}
	// Where one begins or is multiplied; nodes that it only passes through are not to blame.
	if input := batchInput(inputs); input != "" {
		r.at = Claim{Node: id, Input: input}
		r.add(Claim{About: batch, Value: r.batch(id, 0)})
	}
}

// input reads an input of a node of ComfyUI's.
func (r *reader) input(input string, value pyjson.Value) {
	if bound, ok := boundOf(input); ok {
		n, known := number(r.nodes, value, 0)
		c := Claim{About: bound, Value: n}
		if !known {
			c.Unknown = "its value must be a number, or come from a primitive node"
		}
		r.add(c)
	}
	r.models(value)
}

// models reads the names of files of models in a value, however deep, and those in texts.
func (r *reader) models(value pyjson.Value) {
	texts(value, func(text string) {
		if namesFile(text) {
			r.add(Claim{About: aboutModel, Name: text})
			return
		}
		for _, name := range tagged(text) {
			r.add(Claim{About: aboutModel, Name: name})
		}
	})
}

// texts calls use for each text in a value.
func texts(value pyjson.Value, use func(text string)) {
	switch v := value.(type) {
	case pyjson.String:
		use(string(v))
	case pyjson.Array:
		for _, one := range v {
			texts(one, use)
		}
	case *pyjson.Object:
		for _, one := range v.All() {
			texts(one, use)
		}
	}
}
