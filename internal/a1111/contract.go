package a1111

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// The classes of the nodes that do a request of A1111's API. All are output nodes with the
// input [InputPayload].
const (
	ClassTxt2Img     = "A1111Txt2Img"
	ClassImg2Img     = "A1111Img2Img"
	ClassExtraSingle = "A1111ExtraSingleImage"
	ClassExtraBatch  = "A1111ExtraBatchImages"
	ClassPNGInfo     = "A1111PNGInfo"
	ClassInterrogate = "A1111Interrogate"
)

// The classes of the nodes that name what a request needs.
const (
	// ClassCheckpoint has the input `checkpoint`, in any form in which A1111 takes one.
	ClassCheckpoint = "A1111Checkpoint"
	// ClassLora has the input `lora`, and `next` for the next of several.
	ClassLora = "A1111Lora"
	// ClassImage has the input `image`, an input file as in a LoadImage, and `next`. The
	// payload refers to the pictures of this chain by their places, see [ReferenceKey].
	ClassImage = "A1111Image"
)

// The inputs of the nodes.
const (
	// InputPayload is the JSON body of the request. Pictures are references.
	InputPayload = "payload"
	// InputCheckpoint and InputLoras are optional, of txt2img and img2img. InputImages is
	// optional, of all.
	InputCheckpoint = "checkpoint"
	InputLoras      = "loras"
	InputImages     = "images"
	// InputOptions is optional, of txt2img and img2img: a JSON object of A1111's settings
	// that hold for this request unless its override_settings say otherwise.
	InputOptions = "options"

	inputLora  = "lora"
	inputImage = "image"
	inputNext  = "next"
)

// The types of what the nodes give each other.
const (
	typeCheckpoint = "A1111_CHECKPOINT"
	typeLora       = "A1111_LORA"
	typeImage      = "A1111_IMAGE"
)

// JobNode is the id of the node in [Graph] whose outputs are the answer.
const JobNode = "1"

const (
	// maxPictures bounds the pictures of a request, maxLoras its LoRAs.
	maxPictures, maxLoras = 100, 100
)

// ErrRequest means that a request is too much for a graph. Its text is for the client.
var ErrRequest = errors.New("a1111")

// paths are the ends of the routes, by class.
var paths = map[string]string{
	ClassTxt2Img: "txt2img", ClassImg2Img: "img2img", ClassExtraSingle: "extra-single-image",
	ClassExtraBatch: "extra-batch-images", ClassPNGInfo: "png-info", ClassInterrogate: "interrogate",
}

// Path is the end of the route that does a class, such as "txt2img" in
// /sdapi/v1/txt2img; empty for a class that does nothing.
func Path(class string) string { return paths[class] }

// Paths are the ends of the routes that do something, such as "txt2img".
func Paths() []string { return slices.Sorted(maps.Values(paths)) }

// ClassOf is the class that does a route, by the end of its path; empty for none.
func ClassOf(path string) string {
	for class, p := range paths {
		if p == path {
			return class
		}
	}
	return ""
}

// Needs returns the checkpoint that a request for txt2img or img2img names, and the LoRAs
// that its prompts do, each once. The checkpoint is empty if it is whatever is loaded.
func Needs(payload *pyjson.Object) (checkpoint string, loras []string) {
	for _, key := range []string{"prompt", "negative_prompt", "hr_prompt", "hr_negative_prompt"} {
		for _, found := range loraInPrompt.FindAllStringSubmatch(payload.String(key), maxLoras+1) {
			if name := strings.TrimSpace(found[1]); name != "" && !slices.Contains(loras, name) {
				loras = append(loras, name)
			}
		}
	}
	return payload.Object(overrides).String(overrideCheckpoint), loras
}

// loraInPrompt is <lora:NAME:WEIGHT> in a prompt.
var loraInPrompt = regexp.MustCompile(`<lora:([^:>]+)[^>]*>`)

// The settings that hold for one request only.
const (
	overrides          = "override_settings"
	overridesRestore   = "override_settings_restore_afterwards"
	overrideCheckpoint = "sd_model_checkpoint"
)

// OptionCheckpoint is the setting that is the checkpoint.
const OptionCheckpoint = overrideCheckpoint

// Graph is the graph that does a request: class is that of its node, payload the body as
// the client has sent it, and checkpoint and loras are what the instance must have, none if
// that does not matter (see [Needs]). Pictures inside the payload (base64) become data: URLs
// in nodes of their own, which the hub stores as input files when the graph is submitted.
// The payload itself does not change. The error is [ErrRequest].
func Graph(class string, payload *pyjson.Object, checkpoint string, loras []string) (*pyjson.Object, error) {
	if Path(class) == "" {
		return nil, errors.Join(ErrRequest, errors.New("no such class: "+class))
	}
	lifted, pictures := lift(payload)
	if len(pictures) > maxPictures {
		return nil, errors.Join(ErrRequest, errors.New("a request may have "+strconv.Itoa(maxPictures)+" pictures"))
	}
	if len(loras) > maxLoras {
		return nil, errors.Join(ErrRequest, errors.New("a request may have "+strconv.Itoa(maxLoras)+" LoRAs"))
	}
	g := &pyjson.Object{}
	inputs := dict(InputPayload, pyjson.String(pyjson.Marshal(lifted)))
	g.Set(JobNode, node(class, inputs))
	if checkpoint != "" {
		inputs.Set(InputCheckpoint, add(g, ClassCheckpoint, dict(InputCheckpoint, pyjson.String(checkpoint))))
	}
	chain := func(input, class, key string, values []string) {
		at := inputs
		for _, value := range values {
			next := dict(key, pyjson.String(value))
			at.Set(input, add(g, class, next))
			at, input = next, inputNext
		}
	}
	chain(InputLoras, ClassLora, inputLora, loras)
	chain(InputImages, ClassImage, inputImage, pictures)
	return g, nil
}

func node(class string, inputs *pyjson.Object) *pyjson.Object {
	return dict("class_type", pyjson.String(class), "inputs", inputs)
}

// add adds a node and returns the link to it.
func add(g *pyjson.Object, class string, inputs *pyjson.Object) pyjson.Array {
	id := strconv.Itoa(g.Len() + 1)
	g.Set(id, node(class, inputs))
	return pyjson.Array{pyjson.String(id), pyjson.Int(0)}
}

// chained returns the values of a chain of nodes that begins at an input of a node.
func chained(g *pyjson.Object, id, input, key string) []string {
	var values []string
	link := g.Object(id).Object("inputs").Array(input)
	for len(link) == 2 && len(values) < max(maxPictures, maxLoras) {
		to, _ := link[0].(pyjson.String)
		inputs := g.Object(string(to)).Object("inputs")
		values = append(values, inputs.String(key))
		link = inputs.Array(inputNext)
	}
	return values
}

// dict makes an object of keys and values in turn.
func dict(pairs ...any) *pyjson.Object {
	o := &pyjson.Object{}
	for i := 0; i < len(pairs); i += 2 {
		key, _ := pairs[i].(string)
		v, _ := pairs[i+1].(pyjson.Value)
		o.Set(key, v)
	}
	return o
}

// with returns a copy of an object with another value of a member.
func with(o *pyjson.Object, key string, v pyjson.Value) *pyjson.Object {
	changed := &pyjson.Object{}
	for key, v := range o.All() {
		changed.Set(key, v)
	}
	changed.Set(key, v)
	return changed
}
