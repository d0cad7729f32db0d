package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// isLink reports whether Python's executor treats the value as a link.
func isLink(v pyjson.Value) bool {
	a, ok := v.(pyjson.Array)
	if !ok || len(a) != 2 {
		return false
	}
	_, isText := a[0].(pyjson.String)
	_, isNumber := a[1].(pyjson.Number)
	return isText && isNumber
}

// literal coerces and checks a constant value.
func (v *validator) literal(cl *class, in input, val pyjson.Value, inputs *pyjson.Object) (*pyjson.Object, *exception) {
	if o, ok := val.(*pyjson.Object); ok {
		if wrapped, ok := o.Get("__value__"); ok {
			val = wrapped
			inputs.Set(in.name, val)
		}
	}
	coerced, exc := coerce(in.typeName(), val)
	if exc != nil {
		return problem("invalid_input_type", fmt.Sprintf("Failed to convert an input value to a %s value", in.typeName()),
			fmt.Sprintf("%s, %s, %s", in.name, python.Str(val), exc.message),
			dict("input_name", in.name, "input_config", in.config, "received_value", val, "exception_message", exc.message)), nil
	}
	if _, isText := in.kind.(pyjson.String); isText && coerced != nil {
		val = coerced
		inputs.Set(in.name, val)
	}
	if slices.Contains(cl.validates, in.name) {
		return nil, nil // the class's own validation handles it
	}
	if reason, exc := v.bounds(in, val); reason != nil || exc != nil {
		return reason, exc
	}
	return v.membership(in, val), nil
}

// coerce converts a literal to the declared type. nil means that the literal stays as it is.
func coerce(kind string, val pyjson.Value) (pyjson.Value, *exception) {
	switch kind {
	case "INT":
		n, exc := toInt(val)
		return n, exc
	case "FLOAT":
		n, exc := toFloat(val)
		return n, exc
	case "STRING":
		return pyjson.String(python.Str(val)), nil
	case "BOOLEAN":
		return pyjson.Bool(python.Bool(val)), nil
	}
	return nil, nil
}

func (v *validator) bounds(in input, val pyjson.Value) (*pyjson.Object, *exception) {
	for _, bound := range []struct {
		key, kind, text, sign string
	}{
		{"min", "value_smaller_than_min", "Value %s smaller than min of %s", "<"},
		{"max", "value_bigger_than_max", "Value %s bigger than max of %s", ">"},
	} {
		limit, ok := in.options.Get(bound.key)
		if !ok {
			continue
		}
		outside, fault := python.Less(val, limit, bound.sign)
		if fault != nil {
			return nil, raise(fault.Type, "%s", fault.Text)
		}
		if outside {
			return problem(bound.kind, fmt.Sprintf(bound.text, python.Str(val), python.Str(limit)), in.name,
				dict("input_name", in.name, "input_config", in.config, "received_value", val)), nil
		}
	}
	return nil, nil
}

func (v *validator) membership(in input, val pyjson.Value) *pyjson.Object {
	options, isList := in.kind.(pyjson.Array)
	if !isList {
		if in.typeName() != "COMBO" || !v.cat.feat.validatesCombo {
			return nil
		}
		options = in.options.Array("options")
	}
	bad := val
	multi, _ := in.options.Get("multiselect")
	if items, ok := val.(pyjson.Array); ok && python.Bool(multi) && v.cat.feat.integerTimes { // since 0.21.0 too
		wrong := slices.DeleteFunc(slices.Clone(items), func(item pyjson.Value) bool { return contains(options, item) })
		if len(wrong) == 0 {
			return nil
		}
		bad = wrong
	} else if contains(options, val) {
		return nil
	}
	config, shown := in.config, python.Repr(options)
	if options == nil {
		shown = "[]"
	}
	if len(options) > longList {
		config, shown = pyjson.Null{}, fmt.Sprintf("(list of length %d)", len(options))
	}
	quoted := "'" + python.Str(bad) + "'"
	if _, isText := bad.(pyjson.String); !isText && v.cat.feat.integerTimes {
		quoted = python.Repr(bad)
	}
	return problem("value_not_in_list", "Value not in list", fmt.Sprintf("%s: %s not in %s", in.name, quoted, shown),
		dict("input_name", in.name, "input_config", config, "received_value", val))
}

func contains(options pyjson.Array, val pyjson.Value) bool {
	return slices.ContainsFunc(options, func(o pyjson.Value) bool { return python.Equal(o, val) })
}

// matches reports whether an output of type received may feed an input of type
// wanted.
func (c *catalogue) matches(received, wanted pyjson.Value, custom bool) bool {
	if pyjson.Equal(received, wanted) {
		return true
	}
	r, rok := received.(pyjson.String)
	w, wok := wanted.(pyjson.String)
	if c.feat.matchTypes && (r == "COMFY_MATCHTYPE_V3" || w == "COMFY_MATCHTYPE_V3") {
		return true
	}
	if _, isList := received.(pyjson.Array); isList && c.feat.validatesCombo && w == "COMBO" {
		return true
	}
	// Core's own wildcard overrides the comparison. Before 0.8.0, a plain "*" of a
	// custom class is compared as text.
	wild := c.feat.validatesCombo || !custom
	if wild && (r == "*" || w == "*") {
		return true
	}
	if !rok || !wok {
		return false
	}
	for part := range strings.SplitSeq(string(w), ",") {
		part = strings.TrimSpace(part)
		for have := range strings.SplitSeq(string(r), ",") {
			have = strings.TrimSpace(have)
			if part == have || c.feat.validatesCombo && (part == "*" || have == "*") {
				return true
			}
		}
	}
	return false
}

// expandInputs replaces dynamic inputs with the dotted ones that the prompt must have.
func expandInputs(declared []input, given *pyjson.Object) []input {
	out := make([]input, 0, len(declared))
	for _, in := range declared {
		switch in.typeName() {
		case "COMFY_AUTOGROW_V3":
			out = append(out, autogrow(in)...)
		case "COMFY_DYNAMICCOMBO_V3":
			out = append(out, in)
			out = append(out, chosenOption(in, given)...)
		default:
			out = append(out, in)
		}
	}
	return out
}

func autogrow(in input) []input {
	template := in.options.Object("template")
	var names []string
	if fixed := template.Array("names"); fixed != nil {
		for _, n := range fixed {
			names = append(names, python.Str(n))
		}
	} else {
		high, _ := numberOption(template, "max")
		for i := range high {
			names = append(names, fmt.Sprintf("%s%d", template.String("prefix"), i))
		}
	}
	low, _ := numberOption(template, "min")
	var out []input
	for _, group := range []string{"required", "optional"} {
		for _, spec := range template.Object("input").Object(group).All() {
			for i, name := range names {
				if grown, ok := newInput(in.name+"."+name, spec, group == "required" && int64(i) < low); ok {
					out = append(out, grown)
				}
			}
		}
	}
	return out
}

func numberOption(o *pyjson.Object, key string) (int64, bool) {
	v, _ := o.Get(key)
	n, ok := v.(pyjson.Number)
	if !ok {
		return 0, false
	}
	return n.Int64()
}

// chosenOption returns the inputs of the option that a dynamic combo is set to.
func chosenOption(in input, given *pyjson.Object) []input {
	chosen, ok := given.Get(in.name)
	if !ok {
		return nil
	}
	var found []input
	for _, v := range in.options.Array("options") {
		option, _ := v.(*pyjson.Object)
		if key, _ := option.Get("key"); key == nil || !pyjson.Equal(key, chosen) {
			continue
		}
		for _, group := range []string{"required", "optional"} {
			for name, spec := range option.Object("inputs").Object(group).All() {
				if sub, ok := newInput(in.name+"."+name, spec, group == "required"); ok {
					found = append(found, sub)
				}
			}
		}
	}
	return expandInputs(found, given)
}
