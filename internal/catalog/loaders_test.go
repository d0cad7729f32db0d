package catalog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
)

// loaders are ComfyUI's own inputs that name files on the instance, with what
// they read.
var loaders = []struct {
	name, class, inputs string
	files               []job.FileRef
	only                release // empty for all
}{
	{"LoadImage", "LoadImage", `"image":"a.png"`, []job.FileRef{{Type: "input", Filename: "a.png"}}, ""},
	{"clipspace", "LoadImage", `"image":"clipspace/clipspace-mask-1.png [input]"`, []job.FileRef{{Type: "input", Subfolder: "clipspace", Filename: "clipspace-mask-1.png"}}, ""},
	{"LoadImageMask", "LoadImageMask", `"image":"s/a.png","channel":"alpha"`, []job.FileRef{{Type: "input", Subfolder: "s", Filename: "a.png"}}, ""},
	{"LoadImageOutput", "LoadImageOutput", `"image":"x_00001_.png [output]"`, []job.FileRef{{Type: "output", Filename: "x_00001_.png"}}, ""},
	{"LoadAudio", "LoadAudio", `"audio":"a.flac"`, []job.FileRef{{Type: "input", Filename: "a.flac"}}, ""},
	{"LoadVideo", "LoadVideo", `"file":"a.mp4"`, []job.FileRef{{Type: "input", Filename: "a.mp4"}}, ""},
	{"LoadLatent", "LoadLatent", `"latent":"a.latent"`, []job.FileRef{{Type: "input", Filename: "a.latent"}}, ""},
	{
		"Load3D", "Load3D", `"model_file":"3d/a.glb","image":{"image":"threed/i.png [temp]","mask":"threed/m.png [temp]",` +
			`"normal":"threed/n.png [temp]","lineart":"threed/l.png [temp]","recording":"threed/r.mp4 [temp]","camera_info":{"zoom":1}}`,
		[]job.FileRef{
			{Type: "input", Subfolder: "3d", Filename: "a.glb"},
			{Type: "temp", Subfolder: "threed", Filename: "i.png"},
			{Type: "temp", Subfolder: "threed", Filename: "m.png"},
			{Type: "temp", Subfolder: "threed", Filename: "n.png"},
			{Type: "temp", Subfolder: "threed", Filename: "l.png"},
			{Type: "temp", Subfolder: "threed", Filename: "r.mp4"},
		},
		"",
	},
	{"Load3DAnimation", "Load3DAnimation", `"model_file":"3d/a.fbx","image":{"image":"threed/i.png [temp]"}`, []job.FileRef{
		{Type: "input", Subfolder: "3d", Filename: "a.fbx"}, {Type: "temp", Subfolder: "threed", Filename: "i.png"},
	}, older},
	{"Load3DAdvanced", "Load3DAdvanced", `"model_file":"3d/a.glb","viewport_state":{"image":"threed/i.png [temp]"}`, []job.FileRef{
		{Type: "input", Subfolder: "3d", Filename: "a.glb"}, {Type: "temp", Subfolder: "threed", Filename: "i.png"},
	}, newer},
	{"WebcamCapture", "WebcamCapture", `"image":"webcam/1.png [temp]"`, []job.FileRef{{Type: "temp", Subfolder: "webcam", Filename: "1.png"}}, ""},
	{"RecordAudio", "RecordAudio", `"audio":"audio/1.wav [temp]"`, []job.FileRef{{Type: "temp", Subfolder: "audio", Filename: "1.wav"}}, ""},
	{"LoadImageSetNode", "LoadImageSetNode", `"images":{"__value__":["a.png","b.png"]}`, []job.FileRef{
		{Type: "input", Filename: "a.png"}, {Type: "input", Filename: "b.png"},
	}, ""},
	{"GeminiInputFiles", "GeminiInputFiles", `"file":"a.pdf"`, []job.FileRef{{Type: "input", Filename: "a.pdf"}}, ""},
	{"OpenAIInputFiles", "OpenAIInputFiles", `"file":"a.txt"`, []job.FileRef{{Type: "input", Filename: "a.txt"}}, ""},
	{"Painter", "Painter", `"mask":"painter/1.png [temp]"`, []job.FileRef{{Type: "temp", Subfolder: "painter", Filename: "1.png"}}, newer},
	{"VHS_LoadVideo", "VHS_LoadVideo", `"video":"a.webm"`, []job.FileRef{{Type: "input", Filename: "a.webm"}}, ""},
	{"a custom node with an annotated name", "SomeLoader", `"path":"a.exr [output]"`, []job.FileRef{{Type: "output", Filename: "a.exr"}}, ""},
	{"a custom node with an uploaded name", "SomeLoader", `"path":"mine.exr"`, []job.FileRef{{Type: "input", Filename: "mine.exr"}}, ""},
	{"nothing chosen", "Load3D", `"model_file":"none","image":""`, nil, ""},
	{"a text", "CLIPTextEncode", `"text":"a photo of mine.exr, sharp"`, nil, ""},
}

func TestEveryLoader(t *testing.T) {
	t.Parallel()
	uploaded := func(r job.FileRef) bool { return r == job.FileRef{Type: "input", Filename: "mine.exr"} }
	for _, version := range []release{older, newer} {
		cat := fleet(info(t, version))
		for _, c := range loaders {
			if c.only != "" && c.only != version {
				continue
			}
			graph := parseGraph(t, `{"1":{"class_type":"`+c.class+`","inputs":{`+c.inputs+`}}}`)
			var files []job.FileRef
			for _, f := range cat.InputFiles(graph, nil, uploaded) {
				files = append(files, f.Ref)
			}
			require.Equal(t, c.files, files, c.name)
		}
	}
}

// Where only files of one's own may be named, one that is not at the hub is
// refused, whoever else has it and whatever reads it.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	ask := func(cat *catalog.Catalog, known bool, class, inputs string) *catalog.Verdict {
		return cat.Validate(catalog.Prompt{
			Graph: parseGraph(t, `{"1":{"class_type":"`+class+`","inputs":{`+inputs+`}},`+
				`"9":{"class_type":"PreviewAny","inputs":{"source":["1",0]}}}`),
			Version: newer, Known: func(job.FileRef) bool { return known }, OwnFiles: true,
		})
	}
	cat := fleet(info(t, newer), parseInfo(t, `{
		"SomeLoader":{"input":{"required":{"path":["STRING",{}]}},"output":["IMAGE"],"python_module":"custom_nodes.some"},
		"SomeUpload":{"input":{"required":{"file":[["theirs.png"],{"image_upload":true}]}},"output":["IMAGE"],"python_module":"custom_nodes.some"}}`))
	require.True(t, ask(cat, true, "LoadImage", `"image":"mine.png"`).Accepted())
	require.True(t, ask(cat, false, "SomeLoader", `"path":"a text that ends so [output]"`).Accepted())
	require.True(t, ask(cat, false, "SomeLoader", `"path":"a text."`).Accepted())
	for _, c := range []struct{ class, inputs, details string }{
		{"LoadImage", `"image":"broken.png"`, "image - Invalid image file: broken.png"}, // an instance lists it
		{"LoadImage", `"image":"../../secret.png"`, "image - Invalid image file: ../../secret.png"},
		{"SomeUpload", `"file":"theirs.png"`, "file - Invalid file: theirs.png"},
		{"SomeLoader", `"path":"comfyhub/0123/theirs.png [input]"`, "path - Invalid file: comfyhub/0123/theirs.png [input]"},
		{"LoadImageDataSetFromFolder", `"folder":"clipspace"`, "folder - Invalid folder: clipspace"},
	} {
		verdict := ask(cat, false, c.class, c.inputs)
		input, _, _ := strings.Cut(c.details, " ")
		require.False(t, verdict.Accepted(), c.inputs)
		require.Equal(t, "prompt_outputs_failed_validation", verdict.Error.String("type"))
		require.Equal(t, `{"1": {"errors": [{"type": "custom_validation_failed", "message": "Custom validation failed for node", `+
			`"details": "`+c.details+`", "extra_info": {"input_name": "`+input+`"}}], "dependent_outputs": ["9"], "class_type": "`+c.class+`"}}`,
			marshal(verdict.NodeErrors))
	}
	// With no instance known yet, ComfyUI's own loaders are.
	require.False(t, ask(fleet(), false, "LoadImage", `"image":"theirs.png"`).Accepted())
	require.True(t, ask(fleet(), true, "LoadImage", `"image":"mine.png"`).Accepted())
}

// The folders in which hubs put inputs are offered to nobody.
func TestHubFolderIsHidden(t *testing.T) {
	t.Parallel()
	const folders = `"b", "comfyhub", "comfyhub/0123", "comfyhub\\0123", "comfyhubs", "sub/dir"`
	const left = `["b", "comfyhubs", "sub/dir"]`
	cat := fleet(parseInfo(t, `{
		"LoadImageSetFromFolderNode": {"input": {"required": {"folder": [[`+folders+`], {"tooltip": "x"}]}}, "output": ["IMAGE"]},
		"LoadImageDataSetFromFolder": {"input": {"required": {"folder": ["COMBO", {"options": [`+folders+`], "multiselect": false}]}}, "output": ["IMAGE"]},
		"Other": {"input": {"required": {"folder": [[`+folders+`]]}}, "output": []}}`))
	body := string(cat.ObjectInfo(nil).Body())
	require.Contains(t, body, `{"folder": [`+left+`, {"tooltip": "x"}]}`)
	require.Contains(t, body, `{"folder": ["COMBO", {"options": `+left+`, "multiselect": false}]}`)
	require.Contains(t, body, `"Other": {"input": {"required": {"folder": [[`+folders+`]]}}`)
}
