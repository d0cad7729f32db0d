package workflow

import (
	"fmt"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Catalog is the fleet's /object_info.
type Catalog struct{ classes *pyjson.Object }

// ParseCatalog parses the body of /object_info.
func ParseCatalog(body []byte) (*Catalog, error) {
	value, err := pyjson.Parse(body)
	if err != nil {
		return nil, err
	}
	classes, ok := value.(*pyjson.Object)
	if !ok {
		return nil, fmt.Errorf("the hub's object_info is not an object")
	}
	return &Catalog{classes}, nil
}

// Empty means that no instance has ever said what it has.
func (c *Catalog) Empty() bool { return c.classes.Len() == 0 }

// Check compares a command with the fleet and describes, in plain sentences, what
// would not work. Files that a message provides may be missing.
func (c *Command) Check(catalog *Catalog) (problems []string) {
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, id := range c.graph.ids {
		class := catalog.classes.Object(c.graph.Class(id))
		if class == nil {
			complain("node %s: no instance has the node class %s", id, c.graph.Class(id))
			continue
		}
		inputs := c.graph.inputs(id)
		required := class.Object("input").Object("required")
		for name := range required.All() {
			if !inputs.Has(name) {
				complain("node %s (%s): the input %q is missing", id, c.graph.Title(id), name)
			}
		}
		for _, part := range []string{"required", "optional"} {
			for name, spec := range class.Object("input").Object(part).All() {
				if from := c.graph.linked(id, name); from != "" {
					if !c.graph.nodes.Has(from) {
						complain("node %s (%s): the input %q comes from node %s, which is not there", id, c.graph.Title(id), name, from)
					}
					continue
				}
				if problem := c.outside(Slot{id, name}, spec); problem != "" {
					complain("node %s (%s): %s", id, c.graph.Title(id), problem)
				}
				value, ok := c.graph.literal(id, name).(pyjson.String)
				if options := optionsOf(spec); ok && options != nil && !slices.Contains(options, string(value)) && !c.sets(Slot{id, name}) {
					complain("node %s (%s): no instance offers %q for %q", id, c.graph.Title(id), string(value), name)
				}
			}
		}
	}
	if !c.makes(catalog) {
		complain("no node gives a result: add one such as SaveImage")
	}
	for _, model := range c.Spec.Models {
		if !c.offers(catalog, model) {
			complain("models: no instance has %q", model)
		}
	}
	return append(append(problems, c.argumentProblems(catalog)...), c.styleProblems(catalog)...)
}

// sets reports whether a message provides the file of an input.
func (b *bindings) sets(s Slot) bool {
	return slices.Contains(b.slots[Image], s) || slices.Contains(b.slots[Mask], s)
}

// makes reports whether the workflow has an output node.
func (b *bindings) makes(catalog *Catalog) bool {
	return slices.ContainsFunc(b.graph.ids, func(id string) bool {
		output, _ := catalog.classes.Object(b.graph.Class(id)).Get("output_node")
		return output == pyjson.Bool(true)
	})
}

// Model returns the model that the workflow uses if nobody names one, "" if none can be
// named.
func (b *bindings) Model() string {
	for _, slot := range b.slots[Model] {
		if model, ok := b.graph.literal(slot.Node, slot.Input).(pyjson.String); ok {
			return string(model)
		}
	}
	return ""
}

// ModelClasses returns the classes of the nodes that load the model.
func (b *bindings) ModelClasses() (classes []string) {
	for _, slot := range b.slots[Model] {
		classes = append(classes, b.graph.Class(slot.Node))
	}
	return classes
}

// Offers reports whether the fleet has a model for the command; known is false if the
// catalog does not say.
func (b *bindings) Offers(catalog *Catalog, model string) (has, known bool) {
	for _, class := range b.ModelClasses() {
		known = known || catalog.classes.Object(class) != nil
	}
	return b.offers(catalog, model), known
}

// offers reports whether the model input can be set to a name.
func (b *bindings) offers(catalog *Catalog, model string) bool {
	for _, slot := range b.slots[Model] {
		inputs := catalog.classes.Object(b.graph.Class(slot.Node)).Object("input")
		for _, part := range []string{"required", "optional"} {
			if spec, ok := inputs.Object(part).Get(slot.Input); ok && slices.Contains(optionsOf(spec), model) {
				return true
			}
		}
	}
	return false
}

// optionsOf returns the choices of an input in both of ComfyUI's forms; nil for an
// input that is not a choice.
func optionsOf(spec pyjson.Value) (options []string) {
	list, _ := spec.(pyjson.Array)
	if len(list) == 0 {
		return nil
	}
	choices, ok := list[0].(pyjson.Array)
	if kind, _ := list[0].(pyjson.String); kind == "COMBO" && len(list) > 1 {
		more, _ := list[1].(*pyjson.Object)
		choices, ok = more.Array("options"), more.Array("options") != nil
	}
	if !ok {
		return nil
	}
	options = []string{}
	for _, choice := range choices {
		if text, ok := choice.(pyjson.String); ok {
			options = append(options, string(text))
		}
	}
	return options
}
