package catalog

import (
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// A dynamic input stands for several inputs, which have dotted keys in the flat
// prompt. Which ones depends on the node's values.

const (
	// maxAutogrow bounds how many inputs one autogrow input expands to; ComfyUI's
	// own limit is 100.
	maxAutogrow = 1000
	// maxNesting bounds dynamic inputs inside dynamic inputs.
	maxNesting = 8
	// maxExpansions bounds the inputs that are examined for one node, so that
	// nested declarations cannot multiply without limit.
	maxExpansions = 5000
)

// live returns the inputs that a node with these values has.
func (c *class) live(values *pyjson.Object) []*input {
	list, _ := c.expand(values)
	return list
}

// expand is live, and says what is wrong with a dynamic input; nil for nothing.
func (c *class) expand(values *pyjson.Object) (list []*input, wrong *pyjson.Object) {
	for i, in := range c.inputs {
		if !in.dynamic() && !in.foreign() {
			continue
		}
		e := &expansion{class: c.name, values: values, list: append([]*input(nil), c.inputs[:i]...)}
		for _, in := range c.inputs[i:] {
			e.add(in, 0)
		}
		return e.list, e.wrong
	}
	return c.inputs, nil
}

func (in *input) dynamic() bool {
	return in.kind == kindDynamicCombo || in.kind == kindAutogrow || in.kind == kindDynamicSlot || in.kind == kindDynamicGroup
}

// expansion collects the inputs that a node has.
type expansion struct {
	class  string
	values *pyjson.Object
	list   []*input
	steps  int
	// wrong is ComfyUI's error for the first dynamic input that is not used as declared.
	wrong *pyjson.Object
}

// add appends the inputs that an input stands for.
func (e *expansion) add(in *input, depth int) {
	if e.steps++; e.steps > maxExpansions || depth > maxNesting {
		return
	}
	switch in.kind {
	case kindDynamicCombo:
		e.list = append(e.list, in)
		value, _ := e.values.Get(in.name)
		for _, option := range in.extra.Array("options") {
			o, _ := option.(*pyjson.Object)
			if key, ok := o.Get("key"); ok && value != nil && python.Equal(key, value) {
				e.addAll(in, o.Object("inputs"), depth)
				break
			}
		}
	case kindAutogrow:
		e.grow(in, depth)
	case kindDynamicSlot:
		// The slot is optional, and so are the inputs that come with it when it is
		// connected.
		slot := *in
		slot.required = false
		e.list = append(e.list, &slot)
	case kindDynamicGroup:
		e.addRows(in, depth)
	default:
		if in.foreign() {
			in = in.at(in.name)
			in.required = false
		}
		e.list = append(e.list, in)
	}
}

// addAll appends declared inputs under the name of the dynamic one.
func (e *expansion) addAll(in *input, declared *pyjson.Object, depth int) {
	for _, category := range []string{"required", "optional"} {
		for name, spec := range declared.Object(category).All() {
			e.add(parseInput(e.class, in.name+"."+name, spec, in.required && category == "required"), depth+1)
		}
	}
}

// grow appends the inputs of an autogrow: those that the node has and those that it
// must have.
func (e *expansion) grow(in *input, depth int) {
	template := in.extra.Object("template")
	spec, required := growSpec(template)
	if spec == nil {
		return
	}
	names, least := growNames(template)
	for i, name := range names {
		must := in.required && required && i < least
		name = in.name + "." + name
		if e.steps <= maxExpansions && (must || e.values.Has(name)) {
			e.add(parseInput(e.class, name, spec, must), depth+1)
		}
	}
}

// growNames returns the names that an autogrow can have, and how many of them are
// required.
func growNames(template *pyjson.Object) (names []string, least int) {
	least = wholeNumber(template, "min", 0)
	if list := template.Array("names"); list != nil {
		for _, item := range list[:min(len(list), maxAutogrow)] {
			if name, ok := item.(pyjson.String); ok {
				names = append(names, string(name))
			}
		}
		return names, least
	}
	prefix := template.String("prefix")
	for i := range wholeNumber(template, "max", maxAutogrow) {
		names = append(names, prefix+strconv.Itoa(i))
	}
	return names, least
}

// wholeNumber returns a bound of a dynamic input.
func wholeNumber(o *pyjson.Object, key string, otherwise int) int {
	v, _ := o.Get(key)
	n, _ := v.(pyjson.Number)
	if i, ok := n.Int64(); ok && i >= 0 {
		return int(min(i, maxAutogrow))
	}
	return otherwise
}

// growSpec returns the declaration that all inputs of an autogrow share.
func growSpec(template *pyjson.Object) (spec pyjson.Value, required bool) {
	for _, category := range []string{"required", "optional"} {
		for _, spec := range template.Object("input").Object(category).All() {
			return spec, category == "required"
		}
	}
	return nil, false
}

// sub finds the declaration for the rest of a dotted key without knowing the node's
// other values: for a dynamic combo it considers all options together.
func (in *input) sub(className, rest string) *input {
	switch in.kind {
	case kindAutogrow:
		if spec, _ := growSpec(in.extra.Object("template")); spec != nil && !strings.Contains(rest, ".") {
			return parseInput(className, in.name+"."+rest, spec, false)
		}
	case kindDynamicCombo:
		head, tail, dotted := strings.Cut(rest, ".")
		var found *input
		for _, option := range in.extra.Array("options") {
			o, _ := option.(*pyjson.Object)
			for _, category := range []string{"required", "optional"} {
				spec, ok := o.Object("inputs").Object(category).Get(head)
				if !ok {
					continue
				}
				sub := parseInput(className, in.name+"."+head, spec, false)
				if dotted {
					sub = sub.sub(className, tail)
				}
				switch {
				case sub == nil:
				case found == nil:
					found = sub
				case found.options != nil && sub.options != nil:
					found.options = found.options.union(sub.options)
				}
			}
		}
		return found
	case kindDynamicGroup:
		index, name, _ := strings.Cut(rest, ".")
		if f := in.field(name); f != nil && isIndex(index) {
			return f.at(in.name + "." + rest)
		}
	}
	return nil
}
