package sim

import (
	"cmp"
	"context"
	"fmt"
	"image"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// traceNode returns the behaviour of the classes written for the recordings
// (category "trace").
func traceNode(class string) (nodeType, bool) {
	switch class {
	case "SlowNode":
		return nodeType{run: runSlow}, true
	case "StubbornSlowNode":
		return nodeType{run: runStubborn}, true
	case "AsyncSlowNode":
		return nodeType{run: runAsyncSlow, async: true}, true
	case "RaiseNode":
		return nodeType{run: func(c *call) (nodeResult, *exception) {
			return nodeResult{}, &exception{kind: "ValueError", message: c.text("message")}
		}}, true
	case "ExpandNode":
		return nodeType{run: runExpand}, true
	case "BlockNode":
		return nodeType{run: func(c *call) (nodeResult, *exception) {
			if text := c.text("message"); text != "" {
				return one(&blocker{message: &text}), nil
			}
			return one(&blocker{}), nil
		}}, true
	case "ValidateNode":
		return nodeType{run: runPass, validate: validateValue, validates: []string{"value", "crash"}}, true
	}
	return nodeType{}, false
}

func runPass(c *call) (nodeResult, *exception) { return one(c.args["image"]), nil }

func validateValue(_ *folders, inputs *pyjson.Object) (string, *exception) {
	if crash, _ := inputs.Get("crash"); crash != nil && python.Bool(crash) {
		return "", raise("RuntimeError", "crash in validation")
	}
	v, _ := inputs.Get("value")
	if n, ok := python.Number(v); ok && n.Float64() < 0 {
		return "value must not be negative", nil
	}
	return "", nil
}

func runSlow(c *call) (nodeResult, *exception) {
	in, exc := c.image("image")
	if exc != nil {
		return nodeResult{}, exc
	}
	steps := max(1, c.int("steps", 1))
	for i := range steps {
		if exc := c.pause(c.proc.worker, c.number("seconds", 0)/float64(steps)); exc != nil {
			return nodeResult{}, exc
		}
		var pic *preview
		if c.flag("preview") {
			pic = smallPreview(in, c.text("preview_format"), c.int("preview_px", 64))
		}
		if exc := c.step(c.node, i+1, steps, pic); exc != nil {
			return nodeResult{}, exc
		}
	}
	return one(in), nil
}

// smallPreview shrinks the first picture of a batch to at most px pixels.
func smallPreview(in images, format string, px int) *preview {
	img := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	if len(in) > 0 {
		img = in[0]
	}
	if long := max(img.Bounds().Dx(), img.Bounds().Dy()); px > 0 && long > px {
		img = scaleTo(img, img.Bounds().Dx()*px/long, img.Bounds().Dy()*px/long, "bilinear")
	}
	if format == "PNG" {
		return &preview{format: formatPNG, data: encodePNG(img, nil)}
	}
	return &preview{format: formatJPEG, data: encodeJPEG(img, 95)}
}

func runStubborn(c *call) (nodeResult, *exception) {
	if exc := c.pause(c.proc.worker, c.number("seconds", 0)); exc != nil {
		return nodeResult{}, exc
	}
	return runPass(c)
}

func runAsyncSlow(c *call) (nodeResult, *exception) {
	steps := max(1, c.int("steps", 1))
	for i := range steps {
		if c.loop.sleep(c.proc.worker, secondsDuration(c.number("seconds", 0)/float64(steps)), false) != nil {
			return nodeResult{}, workerDied()
		}
		if exc := c.step(c.node, i+1, steps, nil); exc != nil {
			return nodeResult{}, exc
		}
	}
	return runPass(c)
}

// runExpand makes two inverting nodes, one after the other.
func runExpand(c *call) (nodeResult, *exception) {
	link, _ := c.run.node(c.node).Object("inputs").Get("image")
	first, second := c.node+".0.0.1", c.node+".0.0.2"
	nodes := dict(
		first, dict("class_type", "ImageInvert", "inputs", dict("image", link)),
		second, dict("class_type", "ImageInvert", "inputs", dict("image", list(first, 0))))
	return nodeResult{expand: &subgraph{nodes: nodes, outputs: []pyjson.Value{list(second, 0)}}}, nil
}

// simulatedWork is the class for work of a given length.
const simulatedWork = "SimulatedWork"

// simulatedWorkInfo is its entry in /object_info.
func simulatedWorkInfo(feat features) *pyjson.Object {
	fails := list("none", "error", "oom", "hang", "crash")
	info := dict(
		"input", dict(
			"required", dict(
				"image", list("IMAGE"),
				"seconds", list("FLOAT", dict("default", 1.0, "min", 0.0, "max", 3600.0, "step", 0.1, "tooltip", "How long the work takes.")),
				"steps", list("INT", dict("default", 10, "min", 1, "max", 10000, "tooltip", "In how many progress steps, each with a preview."))),
			"optional", dict(
				"fail", list(fails, dict("default", "none", "tooltip", "How the work ends.")),
				"nonce", list("INT", dict("default", 0, "min", 0, "max", int64(1)<<53, "tooltip", "Another number makes the work run again.")))),
		"input_order", dict("required", list("image", "seconds", "steps"), "optional", list("fail", "nonce")))
	if feat.missingNodeType {
		info.Set("is_input_list", pyjson.Bool(false))
	}
	for _, m := range []pyjson.Member{
		{Key: "output", Value: list("IMAGE")},
		{Key: "output_is_list", Value: list(false)},
		{Key: "output_name", Value: list("IMAGE")},
		{Key: "name", Value: value(simulatedWork)},
		{Key: "display_name", Value: value("Simulated Work")},
		{Key: "description", Value: value("Passes an image through after a given time.")},
		{Key: "python_module", Value: value("custom_nodes.comfyhub")},
		{Key: "category", Value: value("comfyhub")},
		{Key: "output_node", Value: value(false)},
	} {
		info.Set(m.Key, m.Value)
	}
	if feat.missingNodeType {
		info.Set("has_intermediate_output", pyjson.Bool(false))
		info.Set("search_aliases", list())
	}
	return info
}

// runSimulatedWork ends, or does not end, the way its input fail says. The failure
// happens halfway.
func runSimulatedWork(c *call) (nodeResult, *exception) {
	in, exc := c.image("image")
	if exc != nil {
		return nodeResult{}, exc
	}
	steps := max(1, c.int("steps", 1))
	fail := c.text("fail")
	size := cmp.Or(c.proc.cfg.WorkPreview, 96)
	target := scene{texts: []string{fmt.Sprint("work ", c.int("nonce", 0))}, width: size, height: size}
	if len(in) > 0 {
		target.base, target.denoise = in[0], 0.5
	}
	for i := range steps {
		if exc := c.pause(c.proc.worker, c.number("seconds", 0)/float64(steps)); exc != nil {
			return nodeResult{}, exc
		}
		if i == steps/2 {
			if exc := c.strike(c.proc.worker, fail); exc != nil {
				return nodeResult{}, exc
			}
		}
		pic := &preview{format: formatJPEG, data: encodeJPEG(paint(target, float64(i+1)/float64(steps)), 95)}
		if exc := c.step(c.node, i+1, steps, pic); exc != nil {
			return nodeResult{}, exc
		}
	}
	return one(in), nil
}

// strike makes a simulated failure happen.
func (c *call) strike(worker context.Context, fail string) *exception {
	switch strings.ToLower(fail) {
	case "error":
		return raise("RuntimeError", "simulated failure")
	case "oom":
		return outOfMemory()
	case "hang":
		<-worker.Done()
		return workerDied()
	case "crash":
		c.proc.srv.crash()
		<-worker.Done()
		return workerDied()
	}
	return nil
}
