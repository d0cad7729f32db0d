package catalog

import (
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// Some prompts pass the validation of a ComfyUI server and then end the thread that
// runs prompts: the server keeps answering, but runs nothing until somebody
// restarts it. None of them may reach an instance.
//
//   - A node that no output needs and that has no inputs, or inputs that are not
//     an object. Repaired: the node gets empty inputs. It does not run, so that
//     changes nothing a client can see. (Servers since 0.14 answer 500 to
//     inputs that are not an object, and then so does the hub.)
//   - An undeclared input that contains a link to a missing node, where the
//     executor follows it. Refused, in ComfyUI's words for the same link in a
//     declared input.
//   - A node that is reached only over undeclared links and has no inputs.
//     Repaired as above: it then fails as a node, not as a server.
//   - A client_id that is not a string, and extra_data that is not an object:
//     refused by [ParseRequest].
//
// Two more do not depend on the prompt alone. The same prompt_id and number twice
// in one queue cannot happen, because instances see new ids, one at a time. Output
// that is not JSON is produced by the node.

// repairs gives empty inputs to nodes that have none. Nodes that an output needs
// have already been refused.
func repairs(g *Graph) []Edit {
	var edits []Edit
	for id, v := range g.nodes().All() {
		node, ok := v.(*pyjson.Object)
		if !ok {
			continue
		}
		inputs, present := node.Get("inputs")
		if _, isObject := inputs.(*pyjson.Object); isObject {
			continue
		}
		edits = append(edits, Edit{Path: Path{id, "inputs"}, Value: &pyjson.Object{}, Add: !present})
	}
	return edits
}

// titles gives a title to nodes of old classes that have no _meta. The step that
// replaces the class throws without one, which makes the whole prompt a 500, though
// no API client sends _meta.
func (c *Catalog) titles(g *Graph) []Edit {
	if c == nil || len(c.replaces) == 0 {
		return nil
	}
	var edits []Edit
	for id := range g.nodes().All() {
		name := g.classType(id)
		if c.entry(name) != nil || !c.replaced(name) {
			continue
		}
		if _, ok := g.nodes().Object(id).Get("_meta"); !ok {
			edits = append(edits, Edit{Path: Path{id, "_meta"}, Value: dict("title", pyjson.String(name)), Add: true})
		}
	}
	return edits
}

// danglingLinks finds the nodes that cannot run because the executor would follow a
// link to a missing node for them, with the exception that Python throws.
func danglingLinks(g *Graph) map[string]*python.Exception {
	var faults map[string]*python.Exception
	var todo []string
	for id := range g.nodes().All() {
		for _, v := range g.inputs(id).All() {
			if from, ok := linkTarget(v); ok && !g.nodes().Has(from) {
				if faults == nil {
					faults = map[string]*python.Exception{}
				}
				faults[id] = keyError(pyjson.String(from))
				todo = append(todo, id)
				break
			}
		}
	}
	if faults == nil {
		return nil // the usual case
	}
	consumers := map[string][]string{}
	for id := range g.nodes().All() {
		for _, v := range g.inputs(id).All() {
			if from, ok := linkTarget(v); ok {
				consumers[from] = append(consumers[from], id)
			}
		}
	}
	for len(todo) > 0 {
		id := todo[0]
		todo = todo[1:]
		for _, consumer := range consumers[id] {
			if faults[consumer] == nil {
				faults[consumer] = faults[id]
				todo = append(todo, consumer)
			}
		}
	}
	return faults
}

func keyError(key pyjson.Value) *python.Exception {
	return &python.Exception{Type: "KeyError", Text: python.Repr(key)}
}
