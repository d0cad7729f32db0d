package workflow

import (
	"slices"
	"strings"
)

// Stage is what a node does, for people. The texts stage_... are named after it.
type Stage string

// The stages.
const (
	Loading   Stage = "loading"   // a model
	Looking   Stage = "looking"   // at a picture that was sent
	Reading   Stage = "reading"   // the words
	Painting  Stage = "painting"  // a picture
	Filming   Stage = "filming"   // a video
	Composing Stage = "composing" // music or speech
	Enlarging Stage = "enlarging"
	Finishing Stage = "finishing"
	Working   Stage = "working" // anything else
)

// Product is what a workflow makes.
type Product string

// The products. Sentences are made where there is nothing else.
const (
	Pictures  Product = "pictures"
	Films     Product = "films"
	Sounds    Product = "sounds"
	Sentences Product = "sentences"
)

// Stage returns what a node does, by what its class is called.
func (b *bindings) Stage(node string) Stage {
	class := strings.ToLower(b.graph.Class(node))
	named := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(class, part) })
	}
	switch {
	case strings.HasPrefix(class, "save"), named("preview", "combine", "createvideo", "vaedecode"):
		return Finishing
	case strings.HasPrefix(class, "loadimage"), strings.HasPrefix(class, "loadvideo"), strings.HasPrefix(class, "loadaudio"), named("vaeencode", "clipvisionencode"):
		return Looking
	case named("loader"), strings.HasPrefix(class, "load"):
		return Loading
	case named("sampler", "simulatedwork") && !named("samplerselect", "ksamplerselect"):
		switch b.Makes() {
		case Films:
			return Filming
		case Sounds:
			return Composing
		case Pictures, Sentences:
		}
		return Painting
	case named("textencode", "conditioning", "guidance", "prompt", "string"):
		return Reading
	case named("upscale", "imagescale", "resize", "interpolat"):
		return Enlarging
	}
	return Working
}

// Makes returns what the workflow makes, by what its last nodes are called.
func (b *bindings) Makes() Product {
	product := Sentences
	for _, id := range b.graph.ids {
		class := strings.ToLower(b.graph.Class(id))
		shows := strings.HasPrefix(class, "save") || strings.Contains(class, "preview") || strings.Contains(class, "combine")
		switch {
		case !shows || strings.Contains(class, "previewany") || strings.Contains(class, "text"):
		case strings.Contains(class, "video"), strings.Contains(class, "webm"), strings.Contains(class, "animated"):
			return Films
		case strings.Contains(class, "audio"):
			product = Sounds
		case product == Sentences:
			product = Pictures
		}
	}
	return product
}

// Has reports whether the workflow has a node.
func (b *bindings) Has(node string) bool { return b.graph.nodes.Has(node) }
