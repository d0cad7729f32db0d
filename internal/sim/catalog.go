package sim

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

//go:embed data/*.json data/*.json.gz
var recorded embed.FS

// The recorded listings are parsed once per process. Nobody changes the trees
// afterwards, and a catalogue copies whatever it overlays.
var (
	listing0364 = sync.OnceValues(func() (*pyjson.Object, error) { return readListing("data/object_info-0.3.64.json.gz") })
	listing0330 = sync.OnceValues(func() (*pyjson.Object, error) { return readListing("data/object_info-0.33.0.json.gz") })
)

// The texts of the recorded classes, by their entries: they are the same for every instance.
var (
	text0364 = sync.OnceValue(func() map[pyjson.Value][]byte { return textOf(listing0364) })
	text0330 = sync.OnceValue(func() map[pyjson.Value][]byte { return textOf(listing0330) })
)

func textOf(listing func() (*pyjson.Object, error)) map[pyjson.Value][]byte {
	base, err := listing()
	if err != nil {
		return nil // newCatalogue says so
	}
	texts := make(map[pyjson.Value][]byte, base.Len())
	for _, entry := range base.All() {
		texts[entry] = pyjson.Marshal(entry)
	}
	return texts
}

func readListing(name string) (*pyjson.Object, error) {
	packed, err := recorded.ReadFile(name)
	if err != nil {
		return nil, err
	}
	zr, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(zr)
	if err != nil {
		return nil, err
	}
	v, err := pyjson.Parse(data)
	if err != nil {
		return nil, err
	}
	o, ok := v.(*pyjson.Object)
	if !ok {
		return nil, fmt.Errorf("sim: %s is no object", name)
	}
	return o, nil
}

// catalogue is the set of node classes of an instance.
type catalogue struct {
	feat    features
	info    *pyjson.Object // class name to its entry in /object_info
	models  map[string][]string
	classes map[string]*class
	disk    *folders // nil while there is none
	text    func() map[pyjson.Value][]byte
}

// class is a node class as validation and execution see it.
type class struct {
	name       string
	info       *pyjson.Object
	inputs     []input // required first, then optional, in declared order
	outputs    []pyjson.Value
	outputNode bool
	custom     bool // from a custom node pack
	nodeType
}

// input is one declared input of a class.
type input struct {
	name     string
	required bool
	kind     pyjson.Value   // a String, or an Array of options
	options  *pyjson.Object // never nil
	config   pyjson.Value   // [type, options] as shown in errors
}

// typeName returns the type of an input, "" for a list of options.
func (in input) typeName() string {
	s, _ := in.kind.(pyjson.String)
	return string(s)
}

func newCatalogue(cfg Config, feat features) (*catalogue, error) {
	source, text := listing0364, text0364
	if feat.newCatalogue {
		source, text = listing0330, text0330
	}
	base, err := source()
	if err != nil {
		return nil, fmt.Errorf("sim: read the recorded node listing: %w", err)
	}
	c := &catalogue{feat: feat, info: &pyjson.Object{}, models: cfg.Models, classes: map[string]*class{}, text: text}
	for name, entry := range base.All() {
		if len(cfg.OnlyClasses) == 0 || slices.Contains(cfg.OnlyClasses, name) {
			c.info.Set(name, entry)
		}
	}
	c.info.Set(simulatedWork, simulatedWorkInfo(feat))
	if feat.loops {
		for name, entry := range loopInfo().All() {
			c.info.Set(name, entry)
		}
	}
	for name, entry := range cfg.CustomClasses {
		c.info.Set(name, entry)
	}
	for _, name := range cfg.OmitClasses {
		c.info.Delete(name)
	}
	for _, name := range c.info.Keys() {
		entry := c.overlay(name, nil)
		if entry.Len() == 0 {
			return nil, fmt.Errorf("sim: class %s has no description", name)
		}
		c.classes[name] = newClass(name, entry, feat)
	}
	return c, nil
}

func newClass(name string, info *pyjson.Object, feat features) *class {
	c := &class{name: name, info: info, outputs: info.Array("output"), nodeType: nodeTypes(name)}
	if v, ok := info.Get("output_node"); ok {
		c.outputNode = python.Bool(v)
	}
	c.custom = len(info.String("python_module")) > 12 && info.String("python_module")[:12] == "custom_nodes"
	declared := info.Object("input")
	for _, group := range []string{"required", "optional"} {
		for key, v := range declared.Object(group).All() {
			if in, ok := newInput(key, v, group == "required"); ok {
				c.inputs = append(c.inputs, in)
			}
		}
	}
	return c
}

func newInput(name string, v pyjson.Value, required bool) (input, bool) {
	spec, ok := v.(pyjson.Array)
	if !ok || len(spec) == 0 {
		return input{}, false
	}
	in := input{name: name, required: required, kind: spec[0], options: &pyjson.Object{}}
	if len(spec) > 1 {
		if o, ok := spec[1].(*pyjson.Object); ok {
			in.options = o
		}
	}
	in.config = pyjson.Array{in.kind, in.options}
	return in, true
}

// input returns the declaration of an input of the class.
func (c *class) input(name string) (input, bool) {
	for _, in := range c.inputs {
		if in.name == name {
			return in, true
		}
	}
	return input{}, false
}

// class returns the class as validation sees it now.
func (c *catalogue) class(name string) (*class, bool) {
	if c.disk != nil && len(modelOptions(name)) > 0 && c.info.Has(name) {
		return newClass(name, c.overlay(name, nil), c.feat), true
	}
	cl, ok := c.classes[name]
	return cl, ok
}

// fileOption names an input that lists the model files of a folder.
type fileOption struct{ input, folder string }

// modelOptions lists the inputs whose options are model files, by class.
func modelOptions(class string) []fileOption {
	one := func(input, folder string) []fileOption { return []fileOption{{input, folder}} }
	switch class {
	case "CheckpointLoaderSimple", "unCLIPCheckpointLoader", "ImageOnlyCheckpointLoader",
		"CreateHookModelAsLora", "CreateHookModelAsLoraModelOnly":
		return one("ckpt_name", "checkpoints")
	case "CheckpointLoader":
		return []fileOption{{"config_name", "configs"}, {"ckpt_name", "checkpoints"}}
	case "UNETLoader":
		return one("unet_name", "diffusion_models")
	case "CLIPLoader":
		return one("clip_name", "text_encoders")
	case "DualCLIPLoader", "TripleCLIPLoader", "QuadrupleCLIPLoader":
		return []fileOption{
			{"clip_name1", "text_encoders"},
			{"clip_name2", "text_encoders"},
			{"clip_name3", "text_encoders"},
			{"clip_name4", "text_encoders"},
		}
	case "VAELoader":
		return one("vae_name", "vae")
	case "LoraLoader", "LoraLoaderModelOnly", "CreateHookLora", "CreateHookLoraModelOnly":
		return one("lora_name", "loras")
	case "ControlNetLoader", "DiffControlNetLoader":
		return one("control_net_name", "controlnet")
	case "CLIPVisionLoader":
		return one("clip_name", "clip_vision")
	case "StyleModelLoader":
		return one("style_model_name", "style_models")
	case "GLIGENLoader":
		return one("gligen_name", "gligen")
	case "UpscaleModelLoader":
		return one("model_name", "upscale_models")
	case "HypernetworkLoader":
		return one("hypernetwork_name", "hypernetworks")
	case "PhotoMakerLoader":
		return one("photomaker_model_name", "photomaker")
	case "ModelPatchLoader":
		return one("name", "model_patches")
	case "AudioEncoderLoader":
		return one("audio_encoder_name", "audio_encoders")
	}
	return nil
}

// overlay returns the entry of a class with this instance's files in its option
// lists. images are the names in the input folder.
func (c *catalogue) overlay(name string, images []string) *pyjson.Object {
	v, _ := c.info.Get(name)
	entry, ok := v.(*pyjson.Object)
	if !ok {
		return nil
	}
	for _, opt := range modelOptions(name) {
		if files := c.modelFiles(opt.folder); len(files) > 0 {
			entry = withOptions(entry, opt.input, func(old pyjson.Array) pyjson.Array {
				// VAELoader lists built-in entries after the files.
				return append(pyjson.Strings(files), old...)
			})
		}
	}
	if name == "LoadImage" || name == "LoadImageMask" {
		entry = withOptions(entry, "image", func(pyjson.Array) pyjson.Array { return pyjson.Strings(images) })
	}
	return entry
}

// withOptions returns a copy of entry in which the option list of one input is
// replaced, in either of the two combo styles.
func withOptions(entry *pyjson.Object, name string, change func(pyjson.Array) pyjson.Array) *pyjson.Object {
	for _, group := range []string{"required", "optional"} {
		spec := entry.Object("input").Object(group).Array(name)
		if len(spec) == 0 {
			continue
		}
		entry = pyjson.Clone(entry).(*pyjson.Object)
		spec = entry.Object("input").Object(group).Array(name)
		if old, ok := spec[0].(pyjson.Array); ok {
			spec[0] = change(old)
		} else if len(spec) > 1 {
			if o, ok := spec[1].(*pyjson.Object); ok && o.Has("options") {
				o.Set("options", change(o.Array("options")))
			}
		}
	}
	return entry
}
