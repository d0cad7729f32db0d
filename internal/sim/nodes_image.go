package sim

import (
	"image"
	"image/color"
	"slices"
	"strings"

	"golang.org/x/image/draw"
)

// mask is a MASK: one grey picture per batch entry.
type mask []*image.Gray

// imageNode returns the behaviour of classes that create and change pictures.
func imageNode(class string) (nodeType, bool) {
	switch class {
	case "EmptyImage":
		return nodeType{run: runEmptyImage}, true
	case "ImageScale", "ImageScaleBy", "ImageScaleToTotalPixels", "ImageUpscaleWithModel":
		return nodeType{run: runImageScale}, true
	case "ImageInvert":
		return nodeType{run: runImageInvert}, true
	case "ImageBatch":
		return nodeType{run: runImageBatch}, true
	case "BatchImagesNode":
		return nodeType{run: runBatchImages}, true
	case "ImageCrop":
		return nodeType{run: runImageCrop}, true
	case "ImageBlend":
		return nodeType{run: runImageBlend}, true
	case "RepeatImageBatch":
		return nodeType{run: runRepeatBatch}, true
	case "ResizeImageMaskNode":
		return nodeType{run: runResize}, true
	}
	return nodeType{}, false
}

func runEmptyImage(c *call) (nodeResult, *exception) {
	w, h, n := c.int("width", 512), c.int("height", 512), c.int("batch_size", 1)
	const floatBytes = 4 // each channel is allocated separately
	if need := w * h * n * floatBytes; need > hostMemory {
		return nodeResult{}, raise("RuntimeError", "[enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate %d bytes. Error code 12 (Cannot allocate memory)", need)
	}
	rgb := c.int("color", 0)
	img := flat(w, h, color.NRGBA{uint8(rgb >> 16), uint8(rgb >> 8), uint8(rgb), 255})
	return one(images(slices.Repeat([]*image.NRGBA{img}, n))), nil
}

// hostMemory is the size in bytes that one allocation may have.
const hostMemory = 512 << 20

// each applies change to every picture of an input.
func (c *call) each(name string, change func(*image.NRGBA) *image.NRGBA) (nodeResult, *exception) {
	in, exc := c.image(name)
	if exc != nil {
		return nodeResult{}, exc
	}
	out := make(images, len(in))
	for i, img := range in {
		if i > 0 && img == in[i-1] {
			out[i] = out[i-1]
			continue
		}
		out[i] = change(img)
	}
	return one(out), nil
}

func scaleTo(img *image.NRGBA, w, h int, method string) *image.NRGBA {
	out := image.NewNRGBA(image.Rect(0, 0, max(1, w), max(1, h)))
	var scaler draw.Scaler = draw.CatmullRom
	if strings.HasPrefix(method, "nearest") {
		scaler = draw.NearestNeighbor
	} else if method == "bilinear" || method == "area" {
		scaler = draw.BiLinear
	}
	scaler.Scale(out, out.Bounds(), img, img.Bounds(), draw.Src, nil)
	return out
}

func runImageScale(c *call) (nodeResult, *exception) {
	if c.class.name == "ImageUpscaleWithModel" {
		if exc := c.pause(c.proc.worker, 4*c.proc.cfg.StepTime.Seconds()); exc != nil {
			return nodeResult{}, exc
		}
	}
	return c.each("image", func(img *image.NRGBA) *image.NRGBA {
		w, h := img.Bounds().Dx(), img.Bounds().Dy()
		switch c.class.name {
		case "ImageScale":
			w, h = targetSize(w, h, c.int("width", 0), c.int("height", 0))
		case "ImageScaleBy":
			f := c.number("scale_by", 1)
			w, h = int(float64(w)*f+0.5), int(float64(h)*f+0.5)
		case "ImageUpscaleWithModel":
			w, h = 4*w, 4*h
		}
		return scaleTo(img, w, h, c.text("upscale_method"))
	})
}

// targetSize keeps the aspect ratio if one side is zero, and the size if both are.
func targetSize(w, h, toW, toH int) (int, int) {
	switch {
	case toW == 0 && toH == 0:
		return w, h
	case toW == 0:
		return max(1, w*toH/h), toH
	case toH == 0:
		return toW, max(1, h*toW/w)
	}
	return toW, toH
}

func runImageInvert(c *call) (nodeResult, *exception) {
	return c.each("image", func(img *image.NRGBA) *image.NRGBA {
		out := image.NewNRGBA(img.Bounds())
		for i, v := range img.Pix {
			if i%4 == 3 {
				out.Pix[i] = v
			} else {
				out.Pix[i] = 255 - v
			}
		}
		return out
	})
}

func runImageBatch(c *call) (nodeResult, *exception) {
	a, exc := c.image("image1")
	if exc != nil {
		return nodeResult{}, exc
	}
	b, exc := c.image("image2")
	if exc != nil {
		return nodeResult{}, exc
	}
	return one(joined(a, b)), nil
}

// joined appends b to a, scaled to its size.
func joined(a, b images) images {
	out := slices.Clone(a)
	for _, img := range b {
		if len(a) > 0 && img.Bounds().Size() != a[0].Bounds().Size() {
			img = scaleTo(img, a[0].Bounds().Dx(), a[0].Bounds().Dy(), "bilinear")
		}
		out = append(out, img)
	}
	return out
}

func runBatchImages(c *call) (nodeResult, *exception) {
	var out images
	for name := range c.proc.srv.inputNames(c) {
		img, exc := c.image(name)
		if exc != nil {
			return nodeResult{}, exc
		}
		if out == nil {
			out = img
			continue
		}
		out = joined(out, img)
	}
	return one(out), nil
}

// inputNames yields the inputs of a node in the order of its class.
func (s *Server) inputNames(c *call) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, in := range expandInputs(c.class.inputs, c.run.node(c.node).Object("inputs")) {
			if _, ok := c.args[in.name]; ok && !yield(in.name) {
				return
			}
		}
	}
}

func runImageCrop(c *call) (nodeResult, *exception) {
	return c.each("image", func(img *image.NRGBA) *image.NRGBA {
		b := img.Bounds()
		x, y := min(c.int("x", 0), b.Dx()-1), min(c.int("y", 0), b.Dy()-1)
		area := image.Rect(x, y, x+c.int("width", 1), y+c.int("height", 1)).Intersect(b)
		out := image.NewNRGBA(image.Rect(0, 0, area.Dx(), area.Dy()))
		draw.Draw(out, out.Bounds(), img, area.Min, draw.Src)
		return out
	})
}

func runImageBlend(c *call) (nodeResult, *exception) {
	other, exc := c.image("image2")
	if exc != nil {
		return nodeResult{}, exc
	}
	if len(other) == 0 {
		return nodeResult{}, raise("IndexError", "index 0 is out of bounds for dimension 0 with size 0")
	}
	factor := c.number("blend_factor", 0.5)
	return c.each("image1", func(img *image.NRGBA) *image.NRGBA {
		out := image.NewNRGBA(img.Bounds())
		over := scaleTo(other[0], img.Bounds().Dx(), img.Bounds().Dy(), "bicubic")
		for i := range out.Pix {
			out.Pix[i] = uint8(float64(img.Pix[i])*(1-factor) + float64(over.Pix[i])*factor + 0.5)
		}
		return out
	})
}

func runRepeatBatch(c *call) (nodeResult, *exception) {
	in, exc := c.image("image")
	if exc != nil {
		return nodeResult{}, exc
	}
	return one(slices.Repeat(in, max(1, c.int("amount", 1)))), nil
}

// runResize simulates the dynamic combo of newer versions. An option that does not
// exist passes the validation and fails here.
func runResize(c *call) (nodeResult, *exception) {
	if _, ok := c.args["resize_type"]; !ok {
		return nodeResult{}, c.missing("resize_type")
	}
	if _, ok := c.args["input"].(images); !ok {
		return one(c.args["input"]), nil
	}
	return c.each("input", func(img *image.NRGBA) *image.NRGBA {
		w, h := targetSize(img.Bounds().Dx(), img.Bounds().Dy(), c.int("resize_type.width", 0), c.int("resize_type.height", 0))
		if f := c.number("resize_type.multiplier", 0); f > 0 {
			w, h = int(float64(w)*f), int(float64(h)*f)
		}
		return scaleTo(img, w, h, c.text("scale_method"))
	})
}

// maskOf uses the red channel of pictures as a mask.
func maskOf(in images) mask {
	out := make(mask, len(in))
	for i, img := range in {
		g := image.NewGray(img.Bounds())
		for j := range g.Pix {
			g.Pix[j] = img.Pix[4*j]
		}
		out[i] = g
	}
	return out
}
