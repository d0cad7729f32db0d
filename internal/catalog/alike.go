package catalog

import "github.com/comfyhub/comfyhub/internal/pyjson"

// RefusesAlike reports whether another instance would refuse a graph for the
// reasons that this one gave: it describes the classes at fault, and those that
// they are linked to, with the same bytes, and no reason can lie in files that
// only one of the two has.
func (i *Info) RefusesAlike(other *Info, graph, nodeErrors []byte) bool {
	v, err := pyjson.Parse(nodeErrors)
	if err != nil {
		return false
	}
	nodes, _ := v.(*pyjson.Object)
	g, err := ParseGraph(graph)
	if err != nil {
		return false
	}
	reasons := 0
	for id := range nodes.All() {
		errors := nodes.Object(id).Array("errors")
		if len(errors) == 0 {
			continue // at fault is a node that it is linked to
		}
		c, same := i.shared(other, nodes.Object(id).String("class_type"))
		if !same || g.classType(id) != c.name {
			return false
		}
		for _, value := range g.inputs(id).All() {
			if from, isLink := linkTarget(value); isLink {
				if _, same := i.shared(other, g.classType(from)); !same {
					return false
				}
			}
		}
		for _, v := range errors {
			e, _ := v.(*pyjson.Object)
			if !isAlike(e, c, g.inputs(id)) {
				return false
			}
			reasons++
		}
	}
	return reasons > 0
}

// shared returns a class that both instances describe with the same bytes.
func (i *Info) shared(other *Info, name string) (*class, bool) {
	c, known := i.plain(name)
	if !known {
		return nil, false
	}
	its, known := other.plain(name)
	return c, known && its.sum == c.sum
}

// isAlike reports whether an error follows from the description of the class and
// the inputs alone.
func isAlike(e *pyjson.Object, c *class, inputs *pyjson.Object) bool {
	switch e.String("type") {
	case "value_smaller_than_min", "value_bigger_than_max", "return_type_mismatch", "required_input_missing", "invalid_input_type":
		return true
	case ValueNotInList:
		name := e.Object("extra_info").String("input_name")
		value, given := inputs.Get(name)
		return given && namesNoFile(c.find(name), value)
	}
	// The class's own code has looked: at the inputs of this node, and wherever
	// they led it.
	for name, value := range inputs.All() {
		if _, isLink := linkTarget(value); !isLink && !namesNoFile(c.find(name), value) {
			return false
		}
	}
	return true
}

// namesNoFile reports whether a value cannot be the name of anything on an
// instance: it is a number, a switch, or one of a list in which no files are.
func namesNoFile(in *input, value pyjson.Value) bool {
	switch value.(type) {
	case pyjson.Number, pyjson.Bool, pyjson.Null:
		return true
	case pyjson.String:
		return in != nil && !in.file && in.options != nil && !in.options.files && !looksLikeFile(value)
	}
	return false
}
