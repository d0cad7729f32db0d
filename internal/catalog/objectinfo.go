package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Document is a JSON body with its entity tag, including the quotes.
type Document struct {
	ETag string
	body func() []byte
}

// Body returns the document. It is built on the first call for a catalog, so a
// client whose tag is still valid costs nothing. It must not be changed.
func (d Document) Body() []byte { return d.body() }

// Uploads are names in the hub's input folder ("a.png", "sub/b.mp4"), which the
// widgets of file inputs offer: otherwise a client could not choose a file that it
// has uploaded to the hub.
type Uploads []string

// ObjectInfo returns the body of GET /object_info for the fleet. uploads, which may
// be nil, are added to the lists of file inputs: sorted in if the list is sorted,
// otherwise first.
func (c *Catalog) ObjectInfo(uploads Uploads) Document {
	if c == nil {
		c = Merge(nil, nil)
	}
	if len(uploads) == 0 {
		return Document{ETag: `"` + c.etag + `"`, body: c.plain}
	}
	return Document{ETag: overlayTag(c.etag, uploads), body: func() []byte { return c.build(uploads) }}
}

// Class returns the body of GET /object_info/{class}; "{}" for an unknown class.
func (c *Catalog) Class(name string, uploads Uploads) Document {
	var body []byte
	if e := c.entry(name); e != nil {
		body = append(body, '{')
		body = pyjson.AppendString(body, name)
		body = append(body, ": "...)
		body = append(body, e.variants[0].class.describe(uploads)...)
		body = append(body, '}')
	} else {
		body = []byte("{}")
	}
	sum := sha256.Sum256(body)
	return Document{ETag: `"` + hex.EncodeToString(sum[:16]) + `"`, body: func() []byte { return body }}
}

func overlayTag(etag string, uploads Uploads) string {
	h := sha256.New()
	h.Write([]byte(etag))
	for _, name := range uploads {
		h.Write([]byte{0})
		h.Write([]byte(name))
	}
	return `"` + hex.EncodeToString(h.Sum(nil)[:16]) + `"`
}

// makeTag identifies what build would return.
func (c *Catalog) makeTag() string {
	h := sha256.New()
	for _, name := range c.names {
		for _, m := range c.entries[name].members {
			h.Write(m.class.sum[:])
		}
		h.Write(c.entries[name].variants[0].class.signature[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (c *Catalog) build(uploads Uploads) []byte {
	size := 2
	for _, name := range c.names {
		size += len(name) + 6 + len(c.entries[name].members[0].class.raw)
	}
	body := make([]byte, 0, size+size/16)
	body = append(body, '{')
	for i, name := range c.names {
		if i > 0 {
			body = append(body, ", "...)
		}
		body = pyjson.AppendString(body, name)
		body = append(body, ": "...)
		body = append(body, c.entries[name].variants[0].class.describe(uploads)...)
	}
	return append(body, '}')
}

// describe returns the class as in object_info: with the bytes of the instance,
// except for inputs whose options were combined or that show uploads.
func (c *class) describe(uploads Uploads) []byte {
	base := c
	if c.base != nil {
		base = c.base
	}
	var edits []Edit
	for i, in := range c.inputs {
		in = in.withUploads(c.name, uploads)
		if in == base.inputs[i] {
			continue
		}
		category := "optional"
		if in.required {
			category = "required"
		}
		spec := pyjson.Array{in.spec}
		if in.extra.Len() > 0 {
			spec = append(spec, in.extra)
		}
		edits = append(edits, Edit{Path: Path{"input", category, in.name}, Value: spec})
	}
	out, err := Splice(base.raw, edits)
	if err != nil {
		// Not reached: the inputs were parsed from these bytes.
		return base.raw
	}
	return out
}

// withUploads returns the input with the uploads that it would list.
func (in *input) withUploads(className string, uploads Uploads) *input {
	if in.options == nil || !in.file || in.extra.String("image_folder") == "output" {
		return in
	}
	fits := uploadFilter(className, in)
	var list pyjson.Array
	for _, name := range uploads {
		if fits(name) {
			list = append(list, pyjson.String(name))
		}
	}
	if len(list) == 0 {
		return in
	}
	all := newOptions(list).union(in.options)
	if slices.IsSortedFunc(in.options.list, byKey) {
		// As ComfyUI lists a folder; clients use the first one as default.
		sorted := slices.Clone(all.list)
		slices.SortFunc(sorted, byKey)
		all = newOptions(sorted)
	}
	return in.withOptions(all)
}

func byKey(a, b pyjson.Value) int { return strings.Compare(optionKey(a), optionKey(b)) }

// Extensions of the files that ComfyUI lists for each kind of upload. ComfyUI uses
// the MIME type of the name, which depends on the machine; these are the usual
// ones.
var (
	imageExtensions = []string{"png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff", "avif", "svg", "heic", "jxl"}
	videoExtensions = []string{"mp4", "webm", "mov", "mkv", "avi", "m4v", "mpg", "mpeg", "gif"}
	audioExtensions = []string{"wav", "mp3", "flac", "ogg", "opus", "m4a", "aac", "weba", "mp4", "webm"}
	modelExtensions = []string{"glb", "gltf", "obj", "fbx", "stl", "ply", "splat", "spz", "ksplat", "usdz"}
)

// uploadFilter returns which uploads an input lists: files of its kind that are in
// the input folder itself, or in 3d/ for 3D models.
func uploadFilter(className string, in *input) func(name string) bool {
	folder := ""
	var extensions []string
	switch {
	case className == "LoadImageMask":
		// Lists every file.
	case in.flag("image_upload"):
		extensions = imageExtensions
	case in.flag("video_upload"):
		extensions = videoExtensions
	case in.flag("audio_upload"):
		extensions = audioExtensions
	case in.flag("file_upload"):
		folder, extensions = "3d/", modelExtensions
	case className == "LoadLatent":
		extensions = []string{"latent"}
	default:
		return func(string) bool { return false }
	}
	return func(name string) bool {
		rest, ok := strings.CutPrefix(name, folder)
		if !ok || strings.Contains(rest, "/") {
			return false
		}
		dot := strings.LastIndexByte(rest, '.')
		return extensions == nil || slices.Contains(extensions, strings.ToLower(rest[dot+1:]))
	}
}
