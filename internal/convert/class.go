package convert

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// class is what the web UI makes of a node class: its widgets, in order.
type class struct {
	title   string
	widgets []widget
	// choices means that the user adds options to it in the web UI.
	choices bool
}

// class reads a node class.
func (c *converter) class(name string) *class {
	if known, ok := c.known[name]; ok {
		return known
	}
	var read *class
	if o := c.classes(name); o != nil {
		read = readClass(o)
		read.choices = name == "CustomCombo"
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
	for _, group := range groups {
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
			spec := inputs.Array(name)
			if len(spec) > 0 && spec[0] == pyjson.String("LOAD_3D") && slices.ContainsFunc(c.widgets, func(w widget) bool { return w.name == "model_file" }) {
				for _, button := range []string{"upload 3d model", "upload extra resources", "clear"} { // their values are saved
					c.widgets = append(c.widgets, widget{name: button, local: true})
				}
			}
			c.widgets = append(c.widgets, widgetsOf(name, spec)...)
		}
	}
	return c
}
