package catalog

import (
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// outcome is the result of checking a literal; the zero outcome means that it is
// valid.
type outcome struct {
	kind    string
	message string
	details string
	// received is the value as the error shows it.
	received pyjson.Value
	// hidden means that the error shows no input_config, because its list is long.
	hidden bool
	// ownCheck means that a validate function of the class replaces this check.
	ownCheck bool
	// cause is the exception that a conversion caught.
	cause *python.Exception
	// fault is an exception that nothing catches.
	fault *python.Exception
}

// checkLiteral checks and coerces a value that is not a link.
func (n *nodeCheck) checkLiteral(in *input, value pyjson.Value) *python.Exception {
	coerced, found := in.judge(value, n.behaviour)
	if coerced != nil {
		n.edits = append(n.edits, Edit{Path: Path{n.id, "inputs", in.name}, Value: coerced})
		value = coerced
	}
	if found.kind == ValueNotInList && n.mayAppear(in, value) {
		n.strays = append(n.strays, n.class.name)
	}
	own := found.ownCheck && n.mayJudge(found.kind) && !n.made(Question{Input: in.name})
	if found.ownCheck && (own || in.file || n.checksItself(in) || n.isUpload(value)) {
		switch {
		case in.file, n.isUpload(value):
			return n.checkFile(in, value)
		case found.fault != nil:
			n.doubt("exception_during_validation")
		default:
			n.doubt(found.kind)
		}
		return nil
	}
	if found.fault != nil {
		return found.fault
	}
	if found.kind == "" {
		if in.file {
			return n.checkFile(in, value)
		}
		return nil
	}
	config := pyjson.Value(in.config())
	if found.hidden {
		config = pyjson.Null{}
	}
	extra := dict("input_name", pyjson.String(in.name), "input_config", config, "received_value", found.received)
	if found.cause != nil {
		extra.Set("exception_message", pyjson.String(found.cause.Text))
	}
	n.refuse(found.kind, found.message, found.details, extra)
	return nil
}

// ValueNotInList is the type of the error that a new file can resolve and a deleted
// file cause.
const ValueNotInList = "value_not_in_list"

// judge checks a literal. coerced is set if ComfyUI continues with a value other
// than the one sent, and it can be written in its place.
func (in *input) judge(value pyjson.Value, b behaviour) (coerced pyjson.Value, found outcome) {
	sent := value
	wrapped := false
	if o, ok := value.(*pyjson.Object); ok {
		if inner, ok := o.Get("__value__"); ok {
			value, wrapped = inner, true
		}
	}
	value, cause := in.convert(value)
	if cause != nil {
		return nil, outcome{
			kind: "invalid_input_type", message: "Failed to convert an input value to a " + in.kind + " value",
			details: in.name + ", " + python.Str(value) + ", " + cause.Text, received: value, cause: cause,
		}
	}
	switch value.(type) {
	case pyjson.Array, *pyjson.Object:
		// Without its wrapper, a list would be a link to the instance, so the bytes
		// stay unchanged although ComfyUI unwraps it in memory.
	default:
		if wrapped || !pyjson.Equal(sent, value) {
			coerced = value
		}
	}
	return coerced, in.checkValue(value, b)
}

// convert converts the value to the declared type. Only the plain types are
// converted; every other type accepts any value. On failure it returns the value
// unchanged.
func (in *input) convert(value pyjson.Value) (pyjson.Value, *python.Exception) {
	if in.listStyle {
		return value, nil
	}
	switch in.kind {
	case "INT":
		n, ok, fault := python.Int(value)
		if fault != nil || !ok {
			return value, fault
		}
		return n, nil
	case "FLOAT":
		n, ok, fault := python.Float(value)
		if fault != nil || !ok {
			return value, fault
		}
		return n, nil
	case "STRING":
		return pyjson.String(python.Str(value)), nil
	case "BOOLEAN":
		return pyjson.Bool(python.Bool(value)), nil
	}
	return value, nil
}

// checkValue checks bounds, then the list of options.
func (in *input) checkValue(value pyjson.Value, b behaviour) outcome {
	for _, bound := range []struct{ key, operator, kind, words string }{
		{"min", "<", "value_smaller_than_min", "smaller than min of"},
		{"max", ">", "value_bigger_than_max", "bigger than max of"},
	} {
		limit, ok := in.extra.Get(bound.key)
		if !ok {
			continue
		}
		beyond, fault := python.Less(value, limit, bound.operator)
		if fault != nil {
			return outcome{ownCheck: true, fault: fault}
		}
		if beyond {
			return outcome{
				kind: bound.kind, message: "Value " + python.Str(value) + " " + bound.words + " " + python.Str(limit),
				details: in.name, received: value, ownCheck: true,
			}
		}
	}
	if in.options == nil || !in.listStyle && !b.combos {
		return outcome{}
	}
	return in.checkOption(value, b)
}

func (in *input) checkOption(value pyjson.Value, b behaviour) outcome {
	values := pyjson.Array{value}
	if list, ok := value.(pyjson.Array); ok && b.multiselect && in.flag("multiselect") {
		values = list
	}
	var strange []string
	for _, v := range values {
		if in.options.has(v) {
			continue
		}
		if b.multiselect {
			strange = append(strange, python.Repr(v))
		} else {
			strange = append(strange, "'"+python.Str(v)+"'")
		}
	}
	if len(strange) == 0 {
		return outcome{}
	}
	const longList = 20 // more options than these are not quoted
	found := outcome{kind: ValueNotInList, message: "Value not in list", received: value, ownCheck: true}
	list := python.Str(in.options.list)
	if len(in.options.list) > longList {
		list, found.hidden = quoteLength(len(in.options.list)), true
	}
	found.details = in.name + ": " + strings.Join(strange, ", ") + " not in " + list
	return found
}

// selfChecking are ComfyUI's own inputs, besides those that name files, whose
// options are checked by the class itself or filled in by the frontend.
var selfChecking = map[[2]string]bool{
	{"CustomCombo", "choice"}:       true,
	{"SelectModelDevice", "device"}: true,
	{"SelectCLIPDevice", "device"}:  true,
	{"SelectVAEDevice", "device"}:   true,
}

// checksItself reports whether ComfyUI's own list check is known not to apply.
func (n *nodeCheck) checksItself(in *input) bool { return in.unlisted(n.class.name) }

// unlisted reports whether an input of a class is known to take more than it lists.
func (in *input) unlisted(className string) bool {
	return selfChecking[[2]string{className, in.name}] || in.flag("remote") || in.flag("remote_combo")
}

// mayJudge reports whether the class may make a check of a value itself.
func (n *nodeCheck) mayJudge(kind string) bool {
	return n.own() || kind == ValueNotInList && n.class.mayList()
}

// mayList reports whether the class may take more than it lists. Of the classes in ComfyUI's
// nodes.py it is known which do; those of comfy_extras come and change with each version.
func (c *class) mayList() bool { return c.module != "nodes" }

// mayAppear reports whether an instance's list could contain the value once it is
// read again. Lists that no instance fills never will, and a file that comes from
// the hub needs no list.
func (n *nodeCheck) mayAppear(in *input, value pyjson.Value) bool {
	return !n.checksItself(in) && !(in.file && n.ownFiles) && !n.isUpload(value)
}

// isUpload reports whether a value names a file that the hub pushes to the
// instance, whose list then has it.
func (n *nodeCheck) isUpload(value pyjson.Value) bool {
	s, ok := value.(pyjson.String)
	return ok && n.known != nil && plausibleFile(string(s)) && n.known(parseFileRef(string(s)))
}

// checkFile looks for the file that a literal names, as the validate functions of
// ComfyUI's loaders do: at the hub, which pushes it, or else among the files that
// instances list, unless only files at the hub may be named.
func (n *nodeCheck) checkFile(in *input, value pyjson.Value) *python.Exception {
	complaint, checked := existenceChecks[[2]string{n.class.name, in.name}]
	name, isText := value.(pyjson.String)
	if !checked || !isText || n.known == nil || !n.ownFiles && in.options.has(name) || n.known(parseFileRef(string(name))) {
		return nil
	}
	n.refuse("custom_validation_failed", "Custom validation failed for node",
		in.name+" - "+complaint+string(name), dict("input_name", pyjson.String(in.name)))
	return nil
}
