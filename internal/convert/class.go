package convert

import (
	"fmt"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// class is what the web UI makes of a node class: its widgets, in order.
type class struct {
	title   string
	widgets []widget
}

// widget is one of the web UI's input elements.
type widget struct {
	name string
	// local means that its value is saved but no input.
	local bool
	// fallback is the value that a new node has.
	fallback pyjson.Value
}

// class reads a node class.
func (c *converter) class(name string) *class {
	if known, ok := c.known[name]; ok {
		return known
	}
	var read *class
	if o := c.classes(name); o != nil {
		read = readClass(o)
	}
	c.known[name] = read
	return read
}

func (c *converter) titleOf(name string) string {
	if known := c.class(name); known != nil && known.title != "" {
		return known.title
	}
	return name
}

func readClass(o *pyjson.Object) *class {
	c := &class{title: o.String("display_name")}
	for _, group := range []string{"required", "optional"} {
		inputs := o.Object("input").Object(group)
		names := inputs.Keys()
		if order := o.Object("input_order").Array(group); len(order) == len(names) {
			sorted := make([]string, 0, len(order))
			for _, v := range order {
				if name, ok := v.(pyjson.String); ok && inputs.Has(string(name)) {
					sorted = append(sorted, string(name))
				}
			}
			if len(sorted) == len(names) {
				names = sorted
			}
		}
		for _, name := range names {
			c.widgets = append(c.widgets, widgetsOf(name, inputs.Array(name))...)
		}
	}
	return c
}

// widgetsOf are the widgets of an input: none, one, or one with a companion.
func widgetsOf(name string, spec pyjson.Array) []widget {
	if len(spec) == 0 {
		return nil
	}
	var options *pyjson.Object
	if len(spec) > 1 {
		options, _ = spec[1].(*pyjson.Object)
	}
	if on(options, "forceInput") {
		return nil
	}
	w := widget{name: name}
	w.fallback, _ = options.Get("default")
	kind, _ := spec[0].(pyjson.String)
	list, isList := spec[0].(pyjson.Array)
	seed := false
	switch {
	case isList || kind == "COMBO":
		if !isList {
			list = options.Array("options")
		}
		if w.fallback == nil && len(list) > 0 {
			w.fallback = list[0]
		}
	case kind == "INT":
		seed = name == "seed" || name == "noise_seed"
		w.fallback = orElse(w.fallback, pyjson.Int(0))
	case kind == "FLOAT":
		w.fallback = orElse(w.fallback, pyjson.Int(0))
	case kind == "STRING":
		w.fallback = orElse(w.fallback, pyjson.String(""))
	case kind == "BOOLEAN":
		w.fallback = orElse(w.fallback, pyjson.Bool(false))
	default:
		return nil
	}
	all := []widget{w}
	if v, declared := options.Get("control_after_generate"); declared {
		off, isBool := v.(pyjson.Bool)
		seed = !isBool || bool(off)
	}
	if seed {
		all = append(all, widget{name: "control_after_generate", local: true})
	}
	return all
}

func orElse(v, other pyjson.Value) pyjson.Value {
	if v == nil {
		return other
	}
	return v
}

func on(options *pyjson.Object, name string) bool {
	v, _ := options.Get(name)
	return v == pyjson.Bool(true)
}

// widgetValues reads the saved values of a node's widgets. What is behind the last widget
// belongs to buttons, such as that for uploads.
func (c *class) widgetValues(saved pyjson.Value) (*pyjson.Object, string) {
	out := pyjson.NewObject()
	values, _ := saved.(pyjson.Array)
	named, _ := saved.(*pyjson.Object)
	for _, w := range c.aligned(values) {
		var v pyjson.Value
		if named != nil {
			v, _ = named.Get(w.name)
		} else if len(values) > 0 {
			v, values = values[0], values[1:]
		}
		if w.local {
			continue
		}
		if v = orElse(v, w.fallback); v == nil {
			return nil, fmt.Sprintf("no value for %s", w.name)
		}
		out.Set(w.name, wrapped(v))
	}
	return out, ""
}

// aligned are the widgets that have saved values. Workflows older than the companion of
// some widget have no value for it.
func (c *class) aligned(values pyjson.Array) []widget {
	at := slices.IndexFunc(c.widgets, func(w widget) bool { return w.local })
	if at < 0 || at >= len(values) {
		return c.widgets
	}
	if _, old := values[at].(pyjson.Bool); old && len(values) >= len(c.widgets) { // it was a switch once
		return c.widgets
	}
	if text, ok := values[at].(pyjson.String); ok && slices.Contains([]string{"fixed", "increment", "decrement", "randomize", "increment-wrap"}, string(text)) {
		return c.widgets
	}
	return slices.DeleteFunc(slices.Clone(c.widgets), func(w widget) bool { return w.local })
}
