package catalog

import (
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// digest identifies bytes.
type digest [sha256.Size]byte

// class is one node class as an instance describes it. It is immutable, and shared
// between the infos of all instances that describe it with the same bytes.
type class struct {
	name string
	// raw is the description as received.
	raw []byte
	sum digest
	// base is set on a class that [Merge] made: the class that raw belongs to.
	base *class
	// inputs are the required inputs, then the optional ones, in order.
	inputs []*input
	// outputs are types: a string, or the options of a V1 combo.
	outputs pyjson.Array
	// output means that the node is an output node.
	output bool
	// v3 means that the class is written for ComfyUI's newer node API.
	v3 bool
	// api means that its nodes call Comfy's paid services, with the API key of a prompt.
	api bool
	// core means that the class comes with ComfyUI.
	core bool
	// module is the Python module that defines the class.
	module string
	// boundary says whether its nodes begin or end a loop.
	boundary boundary
	// signature identifies everything that validation looks at, except the options
	// of combos: instances with the same signature differ only in their files.
	signature digest
}

// input is one declared input of a class.
type input struct {
	name     string
	required bool
	// kind is the declared type; "COMBO" for both styles of combos.
	kind string
	// options are what a combo offers.
	options *options
	// listStyle means that the type is written as the list itself.
	listStyle bool
	// spec is the type as declared, extra its options.
	spec  pyjson.Value
	extra *pyjson.Object
	// file means that the input names a file on the instance.
	file bool
	// fields are those of a row of a dynamic group.
	fields []*input
}

const (
	kindCombo        = "COMBO"
	kindDynamicCombo = "COMFY_DYNAMICCOMBO_V3"
	kindAutogrow     = "COMFY_AUTOGROW_V3"
	kindDynamicSlot  = "COMFY_DYNAMICSLOT_V3"
	kindDynamicGroup = "COMFY_DYNAMICGROUP_V3"
	kindMatch        = "COMFY_MATCHTYPE_V3"
)

var errBadClass = errors.New("catalog: the description of a class has no usable shape")

// parseClass parses one class. An odd input does not make it fail; a description
// that is not an object, or that has no inputs, does.
func parseClass(name string, raw []byte, sum digest) (*class, error) {
	v, err := pyjson.Parse(raw)
	if err != nil {
		return nil, err
	}
	o, ok := v.(*pyjson.Object)
	if !ok {
		return nil, errBadClass
	}
	declared := o.Object("input")
	if declared == nil {
		return nil, errBadClass
	}
	raw = hideHubFolder(name, o, raw)
	c := &class{name: name, raw: raw, sum: sum, outputs: o.Array("output")}
	c.inputs = append(parseInputs(name, declared.Object("required"), true), parseInputs(name, declared.Object("optional"), false)...)
	node, _ := o.Get("output_node")
	c.output = node == pyjson.Bool(true)
	paid, _ := o.Get("api_node")
	c.api = paid == pyjson.Bool(true)
	c.v3 = o.Has("api_node") && o.Has("deprecated") && o.Has("experimental")
	c.module = o.String("python_module")
	c.core = c.module == "nodes" || strings.HasPrefix(c.module, "comfy_extras.")
	c.boundary = boundaryOf(c, declared.Object("hidden"))
	c.signature = sign(c)
	return c, nil
}

func parseInputs(className string, declared *pyjson.Object, required bool) []*input {
	list := make([]*input, 0, declared.Len())
	for name, spec := range declared.All() {
		list = append(list, parseInput(className, name, spec, required))
	}
	return list
}

func parseInput(className, name string, spec pyjson.Value, required bool) *input {
	in := &input{name: name, required: required, extra: &pyjson.Object{}, spec: pyjson.Null{}}
	list, _ := spec.(pyjson.Array)
	if len(list) == 0 {
		return in
	}
	in.spec = list[0]
	if len(list) > 1 {
		if extra, ok := list[1].(*pyjson.Object); ok {
			in.extra = extra
		}
	}
	switch kind := in.spec.(type) {
	case pyjson.String:
		in.kind = string(kind)
		if in.kind == kindCombo {
			in.options = newOptions(in.extra.Array("options"))
		}
		if in.kind == kindDynamicGroup {
			in.fields = parseFields(className, in.extra.Object("template"))
		}
	case pyjson.Array:
		in.kind, in.listStyle = kindCombo, true
		in.options = newOptions(kind)
	}
	in.file = namesFile(className, in)
	return in
}

// flag reports whether an option of the input is set.
func (in *input) flag(name string) bool {
	v, _ := in.extra.Get(name)
	return python.Bool(v)
}

// config returns the input as errors show it: type and options.
func (in *input) config() pyjson.Array { return pyjson.Array{in.spec, in.extra} }

// sign computes the signature of a class.
func sign(c *class) digest {
	text := signInputs(nil, c.inputs)
	for _, out := range c.outputs {
		if _, isList := out.(pyjson.Array); isList {
			out = pyjson.String(kindCombo)
		}
		text = pyjson.Append(text, out)
	}
	if c.output {
		text = append(text, '!')
	}
	return sha256.Sum256(text)
}

func signInputs(text []byte, inputs []*input) []byte {
	for _, in := range inputs {
		text = pyjson.AppendString(text, in.name)
		text = append(text, '!')
		if !in.required {
			text[len(text)-1] = '?'
		}
		text = append(text, in.kind...)
		switch in.kind {
		case kindCombo:
		case kindDynamicCombo, kindAutogrow, kindDynamicSlot:
			text = pyjson.Append(text, in.extra)
		case kindDynamicGroup:
			text = append(signInputs(append(text, '{'), in.fields), '}')
		}
		for _, key := range []string{"min", "max", "multiselect", "rawLink"} {
			if v, ok := in.extra.Get(key); ok {
				text = append(append(text, ' '), key...)
				text = pyjson.Append(text, pyjson.Normalize(v))
			}
		}
		text = append(text, '\n')
	}
	return text
}

// packageName is the folder of custom nodes that the class comes from.
func (c *class) packageName() string {
	if name, custom := strings.CutPrefix(c.module, "custom_nodes."); custom {
		return name
	}
	return ownPackage
}

// find returns the input that a key of a prompt's inputs belongs to, including
// dotted keys of dynamic inputs; nil if there is none.
func (c *class) find(key string) *input {
	i := slices.IndexFunc(c.inputs, func(in *input) bool { return in.name == key })
	if i >= 0 {
		return c.inputs[i]
	}
	head, rest, dotted := strings.Cut(key, ".")
	if !dotted {
		return nil
	}
	for _, in := range c.inputs {
		if in.name == head {
			return in.sub(c.name, rest)
		}
	}
	return nil
}
