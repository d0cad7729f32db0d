package workflow

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// pngWith is a PNG with chunks: kind, name, and what follows its zero.
func pngWith(chunks ...[3]string) string {
	var b bytes.Buffer
	b.WriteString("\x89PNG\r\n\x1a\n")
	add := func(kind, data string) {
		_ = binary.Write(&b, binary.BigEndian, uint32(len(data)))
		b.WriteString(kind + data + "crc!")
	}
	add("IHDR", strings.Repeat("x", 13))
	for i, c := range chunks {
		if i == 1 {
			add("IDAT", "pixels")
		}
		add(c[0], c[1]+"\x00"+c[2])
	}
	add("IEND", "")
	return b.String()
}

func zipped(text string) string {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

// exifWith is EXIF data with a text under one tag, in the further list if it is the comment.
func exifWith(order binary.AppendByteOrder, tag uint16, text string) string {
	head := "II*\x00"
	if order == binary.AppendByteOrder(binary.BigEndian) {
		head = "MM\x00*"
	}
	list := func(at, tag uint16, kind uint16, size, value uint32) []byte {
		b := order.AppendUint16(nil, 1)
		b = order.AppendUint16(order.AppendUint16(b, tag), kind)
		b = order.AppendUint32(order.AppendUint32(b, size), value)
		return order.AppendUint32(b, 0)
	}
	b := order.AppendUint32([]byte(head), 8)
	if tag == tagComment {
		b = append(b, list(8, tagExif, 4, 1, 26)...)
	}
	b = append(b, list(0, tag, 2, uint32(len(text)), uint32(len(b)+18))...)
	return string(b) + text
}

func jpegWith(exif string) string {
	data := "Exif\x00\x00" + exif
	return "\xFF\xD8\xFF\xE0\x00\x04JF\xFF\xE1" + string(binary.BigEndian.AppendUint16(nil, uint16(len(data)+2))) + data + "\xFF\xDA\x00\x02pixels"
}

func webpWith(exif string) string {
	return "RIFF\x00\x00\x00\x00WEBPVP8 \x03\x00\x00\x00abc\x00EXIF" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(exif)))) + exif
}

func utf16Of(text string, order binary.AppendByteOrder) string {
	b := []byte("UNICODE\x00")
	for _, u := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, u)
	}
	return string(b)
}

const infotext = "a red fox, <lora:film:1>\nin the snow\nNegative prompt: blurry, text\nSteps: 30, Sampler: Euler a, Schedule type: Karras, CFG scale: 6.5, Seed: 42, Size: 512x768, Model hash: 1a, Model: dream_8, Lora hashes: \"film: 12, other: 3\", Version: v1"

const textGraph = `{"3": {"class_type": "KSampler", "inputs": {"seed": 7, "steps": 20, "cfg": 8.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0, "model": ["4", 0], "positive": ["6", 0], "negative": ["7", 0], "latent_image": ["5", 0]}},
	"4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd15.safetensors"}}, "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 640, "height": 512, "batch_size": 1}},
	"6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox – ёж", "clip": ["4", 1]}}, "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "blurry", "clip": ["4", 1]}},
	"8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}}, "9": {"class_type": "SaveImage", "inputs": {"images": ["8", 0], "filename_prefix": "x"}}}`

func TestReadRecipe(t *testing.T) {
	t.Parallel()
	a1111 := Recipe{Args: Args{Prompt: "a red fox, <lora:film:1>\nin the snow", Negative: "blurry, text", Seed: 42, SeedGiven: true, Steps: 30, Width: 512, Height: 768, Model: "dream_8"}, CFG: "6.5", Sampler: "Euler a", Scheduler: "Karras"}
	comfy := Recipe{Args: Args{Prompt: "a fox – ёж", Negative: "blurry", Seed: 7, SeedGiven: true, Steps: 20, Width: 640, Height: 512, Model: "sd15.safetensors"}, CFG: "8.0", Sampler: "euler", Scheduler: "normal", Native: true}
	for name, c := range map[string]struct {
		file string
		want *Recipe
	}{
		"A1111 in PNG":              {pngWith([3]string{"tEXt", "parameters", infotext}), &a1111},
		"A1111, compressed":         {pngWith([3]string{"zTXt", "parameters", "\x00" + zipped(infotext)}), &a1111},
		"A1111 in other letters":    {pngWith([3]string{"iTXt", "parameters", "\x00\x00\x00\x00" + infotext}), &a1111},
		"A1111 so and compressed":   {pngWith([3]string{"iTXt", "parameters", "\x01\x00\x00\x00" + zipped(infotext)}), &a1111},
		"A1111 in JPEG":             {jpegWith(exifWith(binary.BigEndian, tagComment, utf16Of(infotext, binary.BigEndian))), &a1111},
		"A1111 in JPEG, other way":  {jpegWith(exifWith(binary.LittleEndian, tagComment, utf16Of(infotext, binary.BigEndian))), &a1111},
		"A1111 in JPEG, plain":      {jpegWith(exifWith(binary.LittleEndian, tagComment, "ASCII\x00\x00\x00"+infotext)), &a1111},
		"ComfyUI in PNG":            {pngWith([3]string{"iTXt", "prompt", "\x00\x00\x00\x00" + textGraph}, [3]string{"tEXt", "workflow", "{}"}), &comfy},
		"ComfyUI in WebP":           {webpWith(exifWith(binary.LittleEndian, tagModel, "prompt:"+textGraph+"\x00")), &comfy},
		"both, behind the pixels":   {pngWith([3]string{"tEXt", "parameters", infotext}, [3]string{"iTXt", "prompt", "\x00\x00\x00\x00" + textGraph}), &comfy},
		"a graph of no use":         {pngWith([3]string{"tEXt", "prompt", "{}"}, [3]string{"tEXt", "parameters", infotext}), &a1111},
		"something else":            {pngWith([3]string{"tEXt", "parameters", "a note"}), nil},
		"nothing":                   {"\xFF\xD8\xFF\xDA\x00\x02pixels", nil},
		"cut off":                   {pngWith([3]string{"tEXt", "parameters", infotext})[:80], nil},
		"no picture":                {"hello", nil},
		"empty":                     {"", nil},
		"a chunk that is too large": {"\x89PNG\r\n\x1a\n\xff\xff\xff\xfftEXtparameters\x00x", nil},
	} {
		got, ok := ReadRecipe(strings.NewReader(c.file))
		require.Equal(t, c.want != nil, ok, name)
		if ok {
			require.Equal(t, *c.want, got, name)
		}
	}
}

// A command gets what it takes of a recipe, within its bounds.
func TestRecipeForACommand(t *testing.T) {
	t.Parallel()
	c := must.Get(NewCommand("generate", Spec{MaxSteps: 25, MaxPixels: 1 << 18}, []byte(textGraph)))(t)
	r, ok := ofInfotext(strings.Replace(infotext, "512x768", "2048x3072", 1))
	require.True(t, ok)
	a := must.Get(c.Settle(r.For(c)))(t)
	require.Equal(t, "a red fox, <lora:film:1>\nin the snow", a.Prompt)
	require.Equal(t, 25, a.Steps)
	require.EqualValues(t, 42, a.Seed)
	require.LessOrEqual(t, a.Width*a.Height, 1<<18)
	require.Less(t, a.Width, a.Height)
	require.Equal(t, map[string]string{"cfg": "6.5"}, a.Set, "another program's samplers have other names")
	for _, size := range []string{"512x", "512x-5", "512", "8192x64", "64x8192", "999999x999999", "x"} {
		r, ok := ofInfotext(strings.Replace(infotext, "512x768", size, 1))
		require.True(t, ok)
		a, err := c.Settle(r.For(c))
		require.NoError(t, err, size)
		require.Zero(t, a.Width+a.Height, size)
	}
	bare := must.Get(NewCommand("bare", Spec{}, []byte(`{"1": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}}}`)))(t)
	require.Equal(t, Args{Prompt: r.Prompt}, r.For(bare))
}
