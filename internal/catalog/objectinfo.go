package catalog

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Document is a JSON body with its entity tag, including the quotes.
type Document struct {
	ETag string
	// shared is built on the first call for a catalog; nil if the document is its reader's own.
	shared func() []byte
	write  func(io.Writer) error
}

// Shared returns a document that is the same for everybody, and false if it is made for one
// reader. It must not be changed.
func (d Document) Shared() ([]byte, bool) {
	if d.shared == nil {
		return nil, false
	}
	return d.shared(), true
}

// WriteTo writes the document, with one class in memory at a time. A client whose tag is
// still valid costs nothing.
func (d Document) WriteTo(w io.Writer) (int64, error) {
	out := &countingWriter{w: w}
	if body, ok := d.Shared(); ok {
		_, err := out.Write(body)
		return out.n, err
	}
	buffered := bufio.NewWriterSize(out, 32<<10) // classes are short
	if err := d.write(buffered); err != nil {
		return out.n, err
	}
	err := buffered.Flush()
	return out.n, err
}

// Body returns the whole document. It must not be changed.
func (d Document) Body() []byte {
	if body, ok := d.Shared(); ok {
		return body
	}
	var out bytes.Buffer
	_, _ = d.WriteTo(&out) // a buffer takes everything
	return out.Bytes()
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

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
		return Document{ETag: `"` + c.etag + `"`, shared: c.plain}
	}
	return Document{ETag: overlayTag(c.etag, uploads), write: func(w io.Writer) error { return c.write(w, uploads) }}
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
	return Document{ETag: `"` + hex.EncodeToString(sum[:16]) + `"`, write: func(w io.Writer) error {
		_, err := w.Write(body)
		return err
	}}
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

// build returns the description of all classes without uploads.
func (c *Catalog) build() []byte {
	size := 2
	for _, name := range c.names {
		size += len(name) + 6 + len(c.entries[name].members[0].class.raw)
	}
	body := bytes.NewBuffer(make([]byte, 0, size+size/16))
	_ = c.write(body, nil) // a buffer takes everything
	return body.Bytes()
}

func (c *Catalog) write(w io.Writer, uploads Uploads) error {
	before := []byte{'{'}
	for _, name := range c.names {
		if _, err := w.Write(append(pyjson.AppendString(before, name), ": "...)); err != nil {
			return err
		}
		if _, err := w.Write(c.entries[name].variants[0].class.describe(uploads)); err != nil {
			return err
		}
		before = append(before[:0], ", "...)
	}
	if len(c.names) > 0 {
		before = before[:0]
	}
	_, err := w.Write(append(before, '}'))
	return err
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
