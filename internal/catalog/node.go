package catalog

import (
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// nodeCheck is the check of one node.
type nodeCheck struct {
	*validator
	id     string
	inputs *pyjson.Object
	class  *class
	// errors are the node's own errors.
	errors pyjson.Array
	// upstreamGood becomes false when a node that this one needs has failed.
	upstreamGood bool
}

// own reports whether the class may do its own checks, so that the hub's findings
// are uncertain.
func (n *nodeCheck) own() bool { return !n.class.core }

// made reports whether instances are nevertheless known to make a check.
func (n *nodeCheck) made(q Question) bool {
	q.Class = n.class.name
	return n.makes != nil && n.makes(q)
}

func (n *nodeCheck) refuse(kind, message, details string, extra *pyjson.Object) {
	n.errors = append(n.errors, problem(kind, message, details, extra))
}

// doubt records a failed check that does not count.
func (n *nodeCheck) doubt(kind string) {
	n.unsure = append(n.unsure, n.id+": "+kind)
}

// checkInputs checks what the class declares for a node with these inputs.
func (n *nodeCheck) checkInputs() *python.Exception {
	list, wrong := n.class.expand(n.inputs)
	if wrong != nil {
		n.errors = append(n.errors, wrong)
		return nil
	}
	for _, in := range list {
		if fault := n.checkInput(in); fault != nil {
			return fault
		}
	}
	return nil
}

// checkInput checks one declared input.
func (n *nodeCheck) checkInput(in *input) *python.Exception {
	value, present := n.inputs.Get(in.name)
	if in.foreign() {
		n.doubt("unknown_input_type")
		if _, isLink := value.(pyjson.Array); !isLink {
			return nil
		}
	}
	if !present {
		if in.required {
			n.missing(in)
		}
		return nil
	}
	if link, ok := value.(pyjson.Array); ok {
		return n.checkLink(in, link)
	}
	return n.checkLiteral(in, value)
}

func (n *nodeCheck) missing(in *input) {
	details := in.name
	if n.class.v3 {
		details = details[strings.LastIndexByte(details, '.')+1:]
	}
	n.refuse("required_input_missing", "Required input is missing", details,
		dict("input_name", pyjson.String(in.name)))
}

// checkLink checks an array: every array is a link.
func (n *nodeCheck) checkLink(in *input, link pyjson.Array) *python.Exception {
	if len(link) != 2 {
		n.refuse("bad_linked_input", "Bad linked input, must be a length-2 list of [node_id, slot_index]", in.name,
			dict("input_name", pyjson.String(in.name), "input_config", in.config(), "received_value", link))
		return nil
	}
	from, fault := n.source(link[0])
	if fault != nil {
		return fault
	}
	if source := n.form(from); source != nil {
		received, fault := source.slot(link[1])
		if fault != nil {
			return fault
		}
		if !n.accepts(in, received, source) {
			n.refuse("return_type_mismatch", "Return type mismatch between linked nodes",
				in.name+", received_type("+python.Str(received)+") mismatch input_type("+python.Str(in.spec)+")",
				dict("input_name", pyjson.String(in.name), "input_config", in.config(),
					"received_type", received, "linked_node", link))
			return nil
		}
	}
	n.follow(from, in, link)
	return nil
}

// follow checks the node that a link comes from.
func (n *nodeCheck) follow(from string, in *input, link pyjson.Array) {
	r, fault := n.check(from)
	if fault != nil {
		n.upstreamGood = false
		extra := dict("input_name", pyjson.String(in.name), "input_config", in.config(),
			"exception_message", pyjson.String(fault.Text), "exception_type", pyjson.String(fault.Type),
			"traceback", pyjson.Array{}, "linked_node", link)
		n.fail(from, pyjson.Array{problem("exception_during_inner_validation", "Exception when validating inner node", fault.Text, extra)})
		return
	}
	if !r.valid {
		n.upstreamGood = false
	}
}

// followLinks checks the nodes that a node of a replaced class links to.
func (n *nodeCheck) followLinks() *python.Exception {
	for name, value := range n.inputs.All() {
		link, ok := value.(pyjson.Array)
		if !ok || len(link) != 2 {
			continue
		}
		from, fault := n.source(link[0])
		if fault != nil {
			return fault
		}
		n.follow(from, &input{name: name, spec: pyjson.Null{}, extra: &pyjson.Object{}}, link)
	}
	return nil
}

// source returns the id of the node that a link names.
func (n *nodeCheck) source(v pyjson.Value) (string, *python.Exception) {
	switch v := v.(type) {
	case pyjson.String:
		if n.graph.nodes().Has(string(v)) {
			return string(v), nil
		}
	case pyjson.Array, *pyjson.Object:
		return "", python.TypeError("unhashable type: '%s'", python.TypeName(v))
	}
	return "", keyError(v)
}

// slot returns the type of an output; negative indices count from the end, as in
// Python.
func (c *class) slot(v pyjson.Value) (pyjson.Value, *python.Exception) {
	sequence := "tuple"
	if c.v3 {
		sequence = "list"
	}
	number, isNumber := python.Number(v)
	if !isNumber || !number.IsInt() {
		return nil, python.TypeError("%s indices must be integers or slices, not %s", sequence, python.TypeName(v))
	}
	i, fits := number.Int64()
	if !fits {
		return nil, &python.Exception{Type: "IndexError", Text: "cannot fit 'int' into an index-sized integer"}
	}
	if i < 0 {
		i += int64(len(c.outputs))
	}
	if i < 0 || i >= int64(len(c.outputs)) {
		return nil, &python.Exception{Type: "IndexError", Text: sequence + " index out of range"}
	}
	return c.outputs[i], nil
}

// accepts checks the type of a link. Types are compared by Python code that custom
// node packs override, so it returns false only if the outcome is certain: between
// ComfyUI's own classes, and not for wildcards.
func (n *nodeCheck) accepts(in *input, received pyjson.Value, source *class) bool {
	if in.dynamic() || in.foreign() || in.kind == "" || in.kind == kindMatch {
		return true
	}
	text, ok := received.(pyjson.String)
	if !ok {
		// A V1 combo. Its options differ between instances, and old and new
		// instances write the same combo in different styles.
		if _, isList := received.(pyjson.Array); isList && in.kind == kindCombo {
			return true
		}
	} else {
		if in.listStyle && text == kindCombo {
			return true
		}
		if !in.listStyle && typesMeet(string(text), in.kind) {
			return true
		}
	}
	if (n.own() || !source.core) && !n.made(Question{Input: in.name, Source: source.name, Type: string(text)}) {
		n.doubt("return_type_mismatch")
		return true
	}
	return false
}

// typesMeet compares two types, which can be lists separated by commas.
func typesMeet(received, declared string) bool {
	if received == declared || received == kindMatch {
		return true
	}
	for r := range strings.SplitSeq(received, ",") {
		r = strings.TrimSpace(r)
		if r == "*" {
			return true
		}
		for d := range strings.SplitSeq(declared, ",") {
			if d = strings.TrimSpace(d); d == "*" || d == r {
				return true
			}
		}
	}
	return false
}

// fit returns the variants of a class that best fit a node with these inputs: those
// with the fewest faults, and among them those that ignore the fewest of the node's
// inputs. The first one is the one to check.
func (e *entry) fit(inputs *pyjson.Object, b behaviour) []*class {
	if len(e.variants) == 1 {
		return []*class{e.variants[0].class}
	}
	var best []*class
	least := 0
	for _, v := range e.variants {
		if score := v.class.misfit(inputs, b); best == nil || score < least {
			best, least = []*class{v.class}, score
		} else if score == least {
			best = append(best, v.class)
		}
	}
	return best
}

// misfit counts what speaks against a variant: a fault outweighs any number of
// undeclared inputs.
func (c *class) misfit(inputs *pyjson.Object, b behaviour) int {
	const fault = 1 << 20
	score := 0
	declared := map[string]bool{}
	list, wrong := c.expand(inputs)
	if wrong != nil {
		score += fault
	}
	for _, in := range list {
		declared[in.name] = true
		value, present := inputs.Get(in.name)
		switch value.(type) {
		case nil:
			if !present && in.required {
				score += fault
			}
		case pyjson.Array:
		default:
			if _, outcome := in.judge(value, b); outcome.kind != "" || outcome.fault != nil {
				score += fault
			}
		}
	}
	for name := range inputs.All() {
		if !declared[name] {
			score++
		}
	}
	return score
}

func quoteLength(n int) string { return "(list of length " + strconv.Itoa(n) + ")" }
