package convert

import (
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// widget is one of the web UI's input elements.
type widget struct {
	name string
	// local means that its value is saved but no input. A companion is a local one that came
	// with a later web UI: it controls how the value before it changes.
	local, companion bool
	// fallback is the value that a new node has. A fixed value is that of each node, whatever
	// is saved; for an unsaved widget nothing is.
	fallback, fixed pyjson.Value
	unsaved         bool
	// options are the widgets that follow this one for each of its values. It is nil for a
	// widget that brings no others.
	options map[string][]widget
	// rows describes a row of the table whose number of rows this widget holds.
	rows *pyjson.Object
	// refusal says why a node with this widget cannot be converted.
	refusal string
}

// groups are the kinds of inputs, in the order of their widgets.
var groups = [...]string{"required", "optional"}

// widgetsOf are the widgets of an input: none, one, or one with others that belong to it.
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
	kind, _ := spec[0].(pyjson.String)
	if options.String("widgetType") != "" {
		kind = pyjson.String(options.String("widgetType"))
	}
	list, isList := spec[0].(pyjson.Array)
	if kind == "COMBO" {
		list, isList = options.Array("options"), true
	}
	if dynamic, ok := dynamicWidgets(name, string(kind), options); ok {
		return dynamic
	}
	w := widget{name: name}
	switch {
	case isList:
		if len(list) > 0 {
			w.fallback = list[0]
		}
	case kind == "IMAGECOMPARE": // it shows pictures, and has no value of its own
		w.unsaved, w.fixed = true, constant(`["", ""]`)
	case kind == "LOAD_3D" && name == "viewport_state": // nobody has turned the model
		w.fixed = constant(`{"image": "", "mask": "", "normal": "", "camera_info": null, "recording": "", "model_3d_info": []}`)
	case kind == "LOAD_3D":
		w.refusal = name + " is rendered in the browser when the workflow is queued"
	case kind == "WEBCAM" || kind == "AUDIO_RECORD":
		w.refusal = name + " is recorded in the browser when the workflow is queued"
	default:
		w.fallback = blank(string(kind))
		if w.fallback == nil {
			return nil
		}
	}
	if v, ok := options.Get("default"); ok {
		w.fallback = v
	}
	all := []widget{w}
	switch {
	case kind == "BOUNDING_BOX":
		for _, side := range []string{"x", "y", "width", "height"} {
			all = append(all, widget{name: side, local: true})
		}
	case controlled(name, string(kind), options):
		all = append(all, widget{name: "control_after_generate", local: true, companion: true})
		if isList {
			all = append(all, widget{name: "control_filter_list", local: true, companion: true})
		}
	}
	return all
}

// blank is the value of a new widget of a kind whose class says none. It is nil for what is no
// widget.
func blank(kind string) pyjson.Value {
	switch kind {
	case "INT", "FLOAT":
		return pyjson.Int(0)
	case "STRING", "MARKDOWN", "TEXTAREA", "PAINTER":
		return pyjson.String("")
	case "BOOLEAN":
		return pyjson.Bool(false)
	case "COLOR":
		return pyjson.String("#000000")
	case "COLORS", "BOUNDING_BOXES":
		return pyjson.Array{}
	case "BOUNDING_BOX":
		return constant(`{"x": 0, "y": 0, "width": 512, "height": 512}`)
	case "CURVE":
		return constant(`{"points": [[0, 0], [1, 1]], "interpolation": "monotone_cubic"}`)
	case "RANGE":
		return constant(`{"min": 0, "max": 1}`)
	case "COMPOSITOR":
		return pyjson.NewObject()
	}
	return nil
}

func constant(text string) pyjson.Value {
	v, _ := pyjson.Parse([]byte(text)) // it is written in this file
	return v
}

// controlled reports whether the value of a widget has a companion that changes it.
func controlled(name, kind string, options *pyjson.Object) bool {
	if v, declared := options.Get("control_after_generate"); declared {
		off, isBool := v.(pyjson.Bool)
		return !isBool || bool(off)
	}
	return kind == "INT" && (name == "seed" || name == "noise_seed")
}

// dynamicWidgets are the widgets of an input of a kind that expands to others, if it is one.
func dynamicWidgets(name, kind string, options *pyjson.Object) (all []widget, dynamic bool) {
	switch kind {
	case "COMFY_DYNAMICCOMBO_V3":
		w := widget{name: name, options: map[string][]widget{}}
		for _, v := range options.Array("options") {
			option, _ := v.(*pyjson.Object)
			key := option.String("key")
			if w.fallback == nil {
				w.fallback = pyjson.String(key)
			}
			w.options[key] = within(name, option.Object("inputs"))
		}
		return []widget{w}, true
	case "COMFY_DYNAMICGROUP_V3":
		fewest, _ := options.Get("min")
		return []widget{{name: name, local: true, fallback: fewest, rows: options}}, true
	case "COMFY_AUTOGROW_V3": // its inputs are only linked, unless the class has been written by hand
		if len(within(name, options.Object("template").Object("input"))) > 0 {
			return []widget{{name: name, refusal: name + " grows by widgets, and their number is not saved"}}, true
		}
		return nil, true
	}
	if strings.HasPrefix(kind, "COMFY_DYNAMIC") {
		return []widget{{name: name, refusal: name + " is of the kind " + kind[:min(len(kind), maxID)] + ", which the hub cannot expand"}}, true
	}
	return nil, false
}

// within are the widgets of inputs that belong to another one.
func within(name string, inputs *pyjson.Object) []widget {
	var all []widget
	for _, group := range groups {
		specs := inputs.Object(group)
		for _, key := range specs.Keys() {
			all = append(all, widgetsOf(name+"."+key, specs.Array(key))...)
		}
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
