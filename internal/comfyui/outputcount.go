package comfyui

import (
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// maxPreviewText bounds a text that stands for a job's outputs, in characters,
// as in ComfyUI.
const maxPreviewText = 1024

// outputs counts what a job made and picks the piece to show for it: a saved
// picture, film, sound or 3D model; else a temporary one; else a text file;
// else a text.
type outputs struct {
	count, previewable           int64
	saved, other, document, text *pyjson.Object
}

func countOutputs(nodes *pyjson.Object) outputs {
	var o outputs
	for node, v := range nodes.All() {
		ui, _ := v.(*pyjson.Object)
		for media, v := range ui.All() {
			items, _ := v.(pyjson.Array)
			if media == "animated" {
				continue // flags, not files
			}
			for _, item := range items {
				o.add(node, media, item)
			}
		}
	}
	return o
}

func (o *outputs) add(node, media string, item pyjson.Value) {
	file := outputFile(item)
	if file == nil {
		if media == "text" && o.text == nil {
			o.text = textPreview(node, item)
		}
		return
	}
	o.count++
	if !previewable(media, file) {
		return
	}
	o.previewable++
	slot := &o.other
	switch {
	case media == "text" || isTextFile(file):
		slot = &o.document
	case file.String("type") == "output":
		slot = &o.saved
	}
	if *slot != nil {
		return
	}
	shown := pyjson.Clone(file).(*pyjson.Object)
	shown.Set("nodeId", pyjson.String(node))
	if !shown.Has("mediaType") {
		shown.Set("mediaType", pyjson.String(media))
	}
	*slot = shown
}

func (o *outputs) shown() *pyjson.Object {
	for _, candidate := range []*pyjson.Object{o.saved, o.other, o.document, o.text} {
		if candidate != nil {
			return candidate
		}
	}
	return nil
}

// outputFile is an item of an output as a file, nil if it is none. Nodes for
// 3D models name theirs by a bare string.
func outputFile(item pyjson.Value) *pyjson.Object {
	switch item := item.(type) {
	case *pyjson.Object:
		return item
	case pyjson.String:
		file := pyjson.NewObject(
			pyjson.Member{Key: "filename", Value: item},
			pyjson.Member{Key: "type", Value: pyjson.String("output")},
			pyjson.Member{Key: "subfolder", Value: pyjson.String("")},
			pyjson.Member{Key: "mediaType", Value: pyjson.String("3d")},
		)
		if isModelFile(file) {
			return file
		}
	}
	return nil
}

func previewable(media string, file *pyjson.Object) bool {
	switch media {
	case "images", "video", "audio", "3d", "text":
		return true
	}
	format := file.String("format")
	return strings.HasPrefix(format, "video/") || strings.HasPrefix(format, "audio/") ||
		isModelFile(file) || isTextFile(file)
}

func isModelFile(file *pyjson.Object) bool {
	return hasExtension(file, ".obj", ".fbx", ".gltf", ".glb", ".usdz")
}

func isTextFile(file *pyjson.Object) bool { return hasExtension(file, ".txt", ".md", ".json") }

func hasExtension(file *pyjson.Object, extensions ...string) bool {
	name := strings.ToLower(file.String("filename"))
	return slices.ContainsFunc(extensions, func(e string) bool { return strings.HasSuffix(name, e) })
}

func textPreview(node string, item pyjson.Value) *pyjson.Object {
	content, ok := item.(pyjson.String)
	if !ok {
		content = pyjson.String(pyjson.Marshal(item))
	}
	shown := pyjson.NewObject()
	if letters := []rune(string(content)); len(letters) > maxPreviewText {
		shown.Set("content", pyjson.String(letters[:maxPreviewText]))
		shown.Set("truncated", pyjson.Bool(true))
	} else {
		shown.Set("content", content)
	}
	shown.Set("nodeId", pyjson.String(node))
	shown.Set("mediaType", pyjson.String("text"))
	return shown
}
