package sim

import (
	"fmt"
	"image"
	"image/color"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// nodeTypes returns the behaviour of a class. Classes not listed here pass
// something through, see runGeneric.
func nodeTypes(class string) nodeType {
	for _, find := range []func(string) (nodeType, bool){imageNode, fileNode, motionNode, sampleNode, textNode, traceNode, loopNode} {
		if t, ok := find(class); ok {
			return t
		}
	}
	if class == simulatedWork {
		return nodeType{run: runSimulatedWork}
	}
	return nodeType{}
}

// images is an IMAGE: a batch of pictures of one size.
type images []*image.NRGBA

// printed stands for the tensor that Python would print.
func (b images) printed() string {
	if len(b) == 0 {
		return "tensor([], size=(0, 0, 0, 3))"
	}
	c := b[0].NRGBAAt(0, 0)
	return fmt.Sprintf("tensor([[[[%.4f, %.4f, %.4f],\n          ...]]]])", float64(c.R)/255, float64(c.G)/255, float64(c.B)/255)
}

// args

func (c *call) image(name string) (images, *exception) {
	v, ok := c.args[name]
	if !ok {
		return nil, c.missing(name)
	}
	if b, ok := v.(images); ok {
		return b, nil
	}
	return nil, raise("AttributeError", "'%s' object has no attribute 'shape'", argType(v))
}

func (c *call) missing(name string) *exception {
	return raise("TypeError", "%s.execute() missing 1 required positional argument: '%s'", c.class.name, name)
}

func argType(v any) string {
	if j, ok := v.(pyjson.Value); ok {
		return python.TypeName(j)
	}
	return "object"
}

func (c *call) number(name string, otherwise float64) float64 {
	if v, ok := c.args[name].(pyjson.Value); ok {
		if n, ok := python.Number(v); ok {
			return n.Float64()
		}
	}
	if f, ok := c.args[name].(float64); ok {
		return f
	}
	return otherwise
}

func (c *call) int(name string, otherwise int) int { return int(c.number(name, float64(otherwise))) }

func (c *call) text(name string) string {
	switch v := c.args[name].(type) {
	case pyjson.Value:
		return python.Str(v)
	case string:
		return v
	}
	return ""
}

func (c *call) flag(name string) bool {
	v, ok := c.args[name].(pyjson.Value)
	return ok && python.Bool(v)
}

func one(v any) nodeResult { return nodeResult{outputs: []any{v}} }

// placeholder is the output if nothing fits: a value of its type that later nodes
// can use.
func placeholder(kind string, seed string) any {
	switch kind {
	case "IMAGE":
		return images{paint(scene{texts: []string{seed}, width: 256, height: 256}, 1)}
	case "MASK":
		return maskOf(images{flat(64, 64, color.NRGBA{255, 255, 255, 255})})
	case "LATENT":
		return latent{scenes: []scene{{texts: []string{seed}, width: 256, height: 256}}}
	case "INT":
		return pyjson.Number("0")
	case "FLOAT":
		return pyjson.Number("0.0")
	case "STRING":
		return pyjson.String("")
	case "BOOLEAN":
		return pyjson.Bool(false)
	}
	return opaque{kind: kind, name: seed}
}

// opaque is a value that only a real server could interpret, such as a model, a
// sampler or noise. name says where it comes from, so that pictures depend on it.
type opaque struct{ kind, name string }

// runGeneric simulates a class without its own executor. Each output passes on the
// first input of its type, or a placeholder. Output nodes show nothing.
func runGeneric(c *call) (nodeResult, *exception) {
	if exc := c.pause(c.proc.worker, c.proc.cfg.StepTime.Seconds()); exc != nil {
		return nodeResult{}, exc
	}
	for _, opt := range modelOptions(c.class.name) {
		if name := c.text(opt.input); name != "" {
			if exc := c.load(opt.folder, name); exc != nil {
				return nodeResult{}, exc
			}
		}
	}
	outputs := make([]any, len(c.class.outputs))
	for i, kind := range c.class.outputs {
		outputs[i] = c.passed(kind)
	}
	return nodeResult{outputs: outputs}, nil
}

// passed finds the first input of a type. Opaque values include the literals of
// the node, so that a different model or strength gives a different picture.
func (c *call) passed(kind pyjson.Value) any {
	name, _ := kind.(pyjson.String)
	for _, in := range c.class.inputs {
		arg, ok := c.args[in.name]
		if !ok || !pyjson.Equal(in.kind, kind) && in.typeName() != "*" && in.typeName() != "COMFY_MATCHTYPE_V3" {
			continue
		}
		if o, ok := arg.(opaque); ok {
			return opaque{o.kind, o.name + "|" + c.literals()}
		}
		return arg
	}
	return placeholder(string(name), c.class.name+c.literals())
}

// literals returns the text of all constants of the node.
func (c *call) literals() string {
	var b strings.Builder
	for _, in := range c.class.inputs {
		if v, ok := c.args[in.name].(pyjson.Value); ok {
			fmt.Fprintf(&b, ";%s=%s", in.name, python.Str(v))
		}
	}
	return b.String()
}

// load loads a model into memory, which takes time if it is not there yet.
func (c *call) load(folder, name string) *exception {
	if c.proc.memory.use(folder, name) && c.proc.cfg.LoadTime > 0 {
		c.setActivity(c.node, "loading")
		defer c.setActivity(c.node, "")
		return c.pause(c.proc.worker, c.proc.cfg.LoadTime.Seconds())
	}
	return nil
}
