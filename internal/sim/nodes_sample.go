package sim

import (
	"hash/fnv"
	"image"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// latent is a LATENT: a description of what to paint, not pixels yet.
type latent struct {
	scenes []scene
	// indices are the places of the scenes in the batch that they were taken from; nil if they
	// were not. Samplers draw the noise of these places.
	indices []int
}

// place is which picture of its batch a scene is.
func (l latent) place(i int) int {
	if l.indices == nil {
		return i
	}
	return l.indices[i]
}

// latentScale is the size of a latent pixel in picture pixels.
const latentScale = 8

// sampleNode returns the behaviour of the text to image classes.
func sampleNode(class string) (nodeType, bool) {
	switch class {
	case "CLIPTextEncode":
		return nodeType{run: runTextEncode}, true
	case "EmptyLatentImage", "EmptySD3LatentImage":
		return nodeType{run: runEmptyLatent}, true
	case "LatentFromBatch":
		return nodeType{run: runFromBatch}, true
	case "KSampler", "KSamplerAdvanced":
		return nodeType{run: runSampler}, true
	case "VAEDecode", "VAEDecodeTiled":
		return nodeType{run: runDecode}, true
	case "VAEEncode", "VAEEncodeTiled", "VAEEncodeForInpaint":
		return nodeType{run: runEncode}, true
	case "CheckpointLoaderSimple":
		return nodeType{run: runCheckpoint}, true
	case "SelectModelDevice", "SelectCLIPDevice", "SelectVAEDevice":
		return nodeType{validates: []string{"device"}}, true // takes any value
	case "ModelAttentionBackend":
		return nodeType{validates: []string{"attention"}}, true // also
	}
	return nodeType{}, false
}

func runCheckpoint(c *call) (nodeResult, *exception) {
	name := c.text("ckpt_name")
	if exc := c.load("checkpoints", name); exc != nil {
		return nodeResult{}, exc
	}
	return nodeResult{outputs: []any{opaque{"MODEL", name}, opaque{"CLIP", name}, opaque{"VAE", name}}}, nil
}

func runTextEncode(c *call) (nodeResult, *exception) {
	return one(opaque{"CONDITIONING", c.text("text")}), nil
}

func runEmptyLatent(c *call) (nodeResult, *exception) {
	s := scene{width: c.int("width", 512), height: c.int("height", 512), denoise: 1}
	out := latent{}
	for range max(1, c.int("batch_size", 1)) {
		out.scenes = append(out.scenes, s)
	}
	return one(out), nil
}

func runFromBatch(c *call) (nodeResult, *exception) {
	in, ok := c.args["samples"].(latent)
	if !ok || len(in.scenes) == 0 {
		return nodeResult{}, raise("TypeError", "'%s' object is not subscriptable", argType(c.args["samples"]))
	}
	from := c.int("batch_index", 0)
	if from < 0 {
		from += len(in.scenes)
	}
	from = max(0, min(len(in.scenes)-1, from))
	to := from + max(0, min(len(in.scenes)-from, c.int("length", 1)))
	out := latent{scenes: in.scenes[from:to]}
	for i := from; i < to; i++ {
		out.indices = append(out.indices, in.place(i))
	}
	return one(out), nil
}

// influence is what a linked value contributes to the picture.
func influence(v any) string {
	o, _ := v.(opaque)
	return o.name
}

func runSampler(c *call) (nodeResult, *exception) {
	in, ok := c.args["latent_image"].(latent)
	if !ok {
		return nodeResult{}, raise("TypeError", "'%s' object is not subscriptable", argType(c.args["latent_image"]))
	}
	seedName := "seed"
	if c.class.name == "KSamplerAdvanced" {
		seedName = "noise_seed"
	}
	seed := seedOf(c.args[seedName])
	texts := []string{
		influence(c.args["positive"]), influence(c.args["negative"]), influence(c.args["model"]),
		c.text("sampler_name"), c.text("scheduler"), strconv.FormatFloat(c.number("cfg", 1), 'g', -1, 64),
	}
	out := latent{indices: in.indices}
	for i, s := range in.scenes {
		s.texts, s.seed, s.denoise = texts, seed+uint64(in.place(i)), c.number("denoise", 1)
		out.scenes = append(out.scenes, s)
	}
	steps := max(1, c.int("steps", 20))
	for i := range steps {
		if exc := c.pause(c.proc.worker, float64(len(in.scenes))*c.proc.cfg.StepTime.Seconds()); exc != nil {
			return nodeResult{}, exc
		}
		var pic *preview
		if c.previews() && len(out.scenes) > 0 {
			pic = latentPreview(out.scenes[0], float64(i+1)/float64(steps))
		}
		if exc := c.step(c.node, i+1, steps, pic); exc != nil {
			return nodeResult{}, exc
		}
	}
	return one(out), nil
}

// seedOf keeps the 64 bits of a seed.
func seedOf(v any) uint64 {
	n, ok := v.(pyjson.Number)
	if !ok {
		return 0
	}
	if b, ok := n.BigInt(); ok {
		return b.Uint64()
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(n)) // never fails
	return h.Sum64()
}

// previews reports whether samplers show previews in this run.
func (c *call) previews() bool {
	method := c.proc.cfg.PreviewMethod
	if c.proc.feat.previewMethod {
		switch own := c.it.extra.String("preview_method"); own {
		case "none", "auto", "latent2rgb", "taesd":
			method = own
		}
	}
	return method != "none"
}

// previewSize is the longest side of a preview in pixels.
const previewSize = 256

func latentPreview(s scene, sharpness float64) *preview {
	long := max(s.width, s.height)
	if long > previewSize {
		s.width, s.height = s.width*previewSize/long, s.height*previewSize/long
	}
	return &preview{format: formatJPEG, data: encodeJPEG(paint(s, sharpness), 95)}
}

func runDecode(c *call) (nodeResult, *exception) {
	in, ok := c.args["samples"].(latent)
	if !ok {
		return nodeResult{}, raise("TypeError", "'%s' object is not subscriptable", argType(c.args["samples"]))
	}
	if exc := c.pause(c.proc.worker, 2*float64(len(in.scenes))*c.proc.cfg.StepTime.Seconds()); exc != nil {
		return nodeResult{}, exc
	}
	out := make(images, len(in.scenes))
	for i, s := range in.scenes {
		s.width, s.height = s.width/latentScale*latentScale, s.height/latentScale*latentScale
		out[i] = paint(s, 1)
	}
	return one(out), nil
}

func runEncode(c *call) (nodeResult, *exception) {
	in, exc := c.image("pixels")
	if exc != nil {
		return nodeResult{}, exc
	}
	if exc := c.pause(c.proc.worker, c.proc.cfg.StepTime.Seconds()); exc != nil {
		return nodeResult{}, exc
	}
	out := latent{}
	for _, img := range in {
		out.scenes = append(out.scenes, sceneOf(img))
	}
	return one(out), nil
}

func sceneOf(img *image.NRGBA) scene {
	return scene{width: img.Bounds().Dx(), height: img.Bounds().Dy(), base: img}
}
