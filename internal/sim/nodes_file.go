package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image"
	"image/color"
	_ "image/gif" // LoadImage reads the formats of Pillow, as far as Go can
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp" // as above

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// fileNode returns the behaviour of classes that read and write files.
func fileNode(class string) (nodeType, bool) {
	switch class {
	case "SaveImage":
		return nodeType{run: runSaveImage}, true
	case "PreviewImage":
		return nodeType{run: runPreviewImage}, true
	case "MaskPreview":
		return nodeType{run: runMaskPreview}, true
	case "SaveImageWebsocket":
		return nodeType{run: runSaveWebsocket, fingerprint: func(*folders, *pyjson.Object) (string, error) { return "", nil }}, true
	case "LoadImage", "LoadImageOutput":
		return nodeType{run: runLoadImage, validate: validateImageFile, validates: []string{"image"}, fingerprint: fileHash}, true
	case "LoadImageMask":
		return nodeType{run: runLoadMask, validate: validateImageFile, validates: []string{"image"}, fingerprint: fileHash}, true
	}
	return nodeType{}, false
}

func expandTime(s string) string {
	t := time.Now()
	for token, layout := range map[string]string{
		"%year%": "2006", "%month%": "01", "%day%": "02", "%hour%": "15", "%minute%": "04", "%second%": "05",
	} {
		s = strings.ReplaceAll(s, token, t.Format(layout))
	}
	return s
}

// saved is the file reference shown in a ui result.
func saved(name, subfolder, kind string) *pyjson.Object {
	return dict("filename", name, "subfolder", subfolder, "type", kind)
}

// save writes the pictures of a batch and returns their references.
func (c *call) save(in images, kind, prefix string) (pyjson.Array, *exception) {
	if len(in) == 0 {
		return nil, raise("IndexError", "index 0 is out of bounds for dimension 0 with size 0")
	}
	t, exc := c.proc.files.next(kind, prefix, in[0].Bounds().Dx(), in[0].Bounds().Dy())
	if exc != nil {
		return nil, exc
	}
	chunks, exc := c.textChunks()
	if exc != nil {
		return nil, exc
	}
	var refs pyjson.Array
	for i, img := range in {
		name := fmt.Sprintf("%s_%05d_.png", strings.ReplaceAll(t.name, "%batch_num%", fmt.Sprint(i)), t.counter+i)
		if err := os.WriteFile(filepath.Join(t.dir, name), encodePNG(img, chunks), 0o644); err != nil {
			return nil, raise("OSError", "%v", err)
		}
		refs = append(refs, withMedia(c.proc, saved(name, t.subfolder, kind), img.Bounds()))
	}
	return refs, nil
}

// textChunks returns the prompt and whatever else extra_pnginfo holds.
func (c *call) textChunks() ([]pngText, *exception) {
	chunks := []pngText{{"prompt", string(pyjson.Marshal(c.it.graph))}}
	info, _ := c.it.extra.Get("extra_pnginfo")
	switch info := info.(type) {
	case *pyjson.Object:
		for key, v := range info.All() {
			chunks = append(chunks, pngText{key, string(pyjson.Marshal(v))})
		}
	case pyjson.String:
		if info != "" {
			return nil, raise("TypeError", "string indices must be integers, not 'str'")
		}
	case pyjson.Array:
		if len(info) > 0 {
			return nil, raise("TypeError", "list indices must be integers or slices, not %s", python.TypeName(info[0]))
		}
	case pyjson.Number, pyjson.Bool:
		return nil, raise("TypeError", "'%s' object is not iterable", python.TypeName(info))
	}
	return chunks, nil
}

func (c *call) saveNode(kind, prefix string) (nodeResult, *exception) {
	in, exc := c.image("images")
	if exc != nil {
		return nodeResult{}, exc
	}
	refs, exc := c.save(in, kind, prefix)
	if exc != nil {
		return nodeResult{}, exc
	}
	result := nodeResult{ui: dict("images", refs)}
	for range c.class.outputs {
		result.outputs = append(result.outputs, in)
	}
	return result, nil
}

func runSaveImage(c *call) (nodeResult, *exception) {
	return c.saveNode("output", c.text("filename_prefix"))
}

func runPreviewImage(c *call) (nodeResult, *exception) { return c.saveNode("temp", c.tempPrefix()) }

func runMaskPreview(c *call) (nodeResult, *exception) {
	m, ok := c.args["mask"].(mask)
	if !ok {
		return nodeResult{}, raise("AttributeError", "'%s' object has no attribute 'reshape'", argType(c.args["mask"]))
	}
	in := make(images, len(m))
	for i, g := range m {
		in[i] = image.NewNRGBA(g.Bounds())
		draw.Draw(in[i], g.Bounds(), g, g.Bounds().Min, draw.Src)
	}
	refs, exc := c.save(in, "temp", c.tempPrefix())
	return nodeResult{ui: dict("images", refs)}, exc
}

// tempPrefix returns the prefix of a previewing node. Its five letters stay the
// same as long as the node object exists.
func (c *call) tempPrefix() string {
	known, ok := c.objects.prefixes[c.node]
	if !ok {
		letters := make([]byte, 5)
		for i := range letters {
			letters[i] = "abcdefghijklmnopqrstupvxyz"[rand.IntN(26)]
		}
		known = "ComfyUI_temp_" + string(letters)
		c.objects.prefixes[c.node] = known
	}
	return known
}

// runSaveWebsocket sends each picture as a full-size preview.
func runSaveWebsocket(c *call) (nodeResult, *exception) {
	in, exc := c.image("images")
	if exc != nil {
		return nodeResult{}, exc
	}
	var data []byte
	for i, img := range in {
		if i == 0 || img != in[i-1] { // batches often repeat a picture
			data = encodePNG(img, nil)
		}
		if exc := c.step(c.node, i, len(in), &preview{format: formatPNG, data: data}); exc != nil {
			return nodeResult{}, exc
		}
	}
	return nodeResult{}, nil
}

func validateImageFile(f *folders, inputs *pyjson.Object) (string, *exception) {
	v, _ := inputs.Get("image")
	name, ok := v.(pyjson.String)
	if !ok {
		return "", nil
	}
	if !f.inputExists(string(name)) {
		return "Invalid image file: " + string(name), nil
	}
	return "", nil
}

func fileHash(f *folders, inputs *pyjson.Object) (string, error) {
	full, err := f.inputFile(inputs.String("image"))
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(full)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

func (c *call) readImage(name string) (*image.NRGBA, *exception) {
	full, err := c.proc.files.inputFile(c.text(name))
	if err != nil {
		return nil, raise("ValueError", "%v", err)
	}
	file, err := os.Open(full)
	if err != nil {
		return nil, raise("FileNotFoundError", "[Errno 2] No such file or directory: '%s'", full)
	}
	defer file.Close()
	decoded, _, err := image.Decode(file)
	if err != nil {
		return nil, raise("PIL.UnidentifiedImageError", "cannot identify image file '%s'", full)
	}
	img := image.NewNRGBA(image.Rect(0, 0, decoded.Bounds().Dx(), decoded.Bounds().Dy()))
	draw.Draw(img, img.Bounds(), decoded, decoded.Bounds().Min, draw.Src)
	return img, nil
}

// runLoadImage returns the picture and, as a mask, its transparency.
func runLoadImage(c *call) (nodeResult, *exception) {
	img, exc := c.readImage("image")
	if exc != nil {
		return nodeResult{}, exc
	}
	return nodeResult{outputs: []any{images{opaqueCopy(img)}, mask{channel(img, 3, true)}}}, nil
}

func runLoadMask(c *call) (nodeResult, *exception) {
	img, exc := c.readImage("image")
	if exc != nil {
		return nodeResult{}, exc
	}
	index := map[string]int{"red": 0, "green": 1, "blue": 2, "alpha": 3}[c.text("channel")]
	return one(mask{channel(img, index, index == 3)}), nil
}

func opaqueCopy(img *image.NRGBA) *image.NRGBA {
	out := image.NewNRGBA(img.Bounds())
	copy(out.Pix, img.Pix)
	for i := 3; i < len(out.Pix); i += 4 {
		out.Pix[i] = 255
	}
	return out
}

func channel(img *image.NRGBA, index int, inverted bool) *image.Gray {
	g := image.NewGray(img.Bounds())
	for i := range g.Pix {
		v := img.Pix[4*i+index]
		if inverted {
			v = 255 - v
		}
		g.Pix[i] = v
	}
	return g
}

// withAlpha returns a picture with the alpha channel of another one, scaled.
func withAlpha(img, alpha *image.NRGBA) *image.NRGBA {
	out := opaqueCopy(img)
	b, a := img.Bounds(), alpha.Bounds()
	for y := range b.Dy() {
		for x := range b.Dx() {
			c := out.NRGBAAt(x, y)
			from := alpha.NRGBAAt(a.Min.X+x*a.Dx()/b.Dx(), a.Min.Y+y*a.Dy()/b.Dy())
			out.SetNRGBA(x, y, color.NRGBA{c.R, c.G, c.B, from.A})
		}
	}
	return out
}
