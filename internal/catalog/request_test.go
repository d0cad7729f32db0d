package catalog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestParseRequest(t *testing.T) {
	t.Parallel()
	r := must.Get(catalog.ParseRequest([]byte(`{
		"prompt": {"3":{"inputs":{"seed":18446744073709551615}}}, "client_id":"c", "prompt_id":"p",
		"number": "2", "front": "false", "partial_execution_targets": ["9"],
		"extra_data": {"b": 1e2,"client_id":"other","api_key_comfy_org":"k\u00e9y", "extra_pnginfo" : {"workflow":{"id" :NaN}},"auth_token_comfy_org":null},
		"odd" : [1 ]}`)))(t)
	require.Equal(t, `{"3":{"inputs":{"seed":18446744073709551615}}}`, string(r.Graph.Bytes()))
	require.Equal(t, "c", r.ClientID)
	require.Equal(t, "p", r.PromptID)
	require.Equal(t, `"p"`, string(r.RawPromptID))
	require.Equal(t, pyjson.Number("2.0"), r.Number)
	require.True(t, r.Front, "a string that is not empty is true")
	require.Equal(t, `["9"]`, string(r.Targets))
	require.Equal(t, `{"b": 1e2, "extra_pnginfo": {"workflow":{"id" :NaN}}}`, string(r.Extra))
	require.Equal(t, `{"api_key_comfy_org": "k\u00e9y", "auth_token_comfy_org": null}`, string(r.Secrets))
	require.Equal(t, `{"odd": [1 ]}`, string(r.Other))

	r = must.Get(catalog.ParseRequest([]byte(`{"prompt":{},"extra_data":{"client_id":"c" }}`)))(t)
	require.Equal(t, "c", r.ClientID, "extra_data.client_id counts too")
	require.Equal(t, "{}", string(r.Extra))
	require.Nil(t, r.Secrets)
	require.Nil(t, r.Other)
	require.Nil(t, r.Targets)
	require.Nil(t, r.RawPromptID)
	require.Empty(t, r.Number)
	require.False(t, r.Front)

	r = must.Get(catalog.ParseRequest([]byte(`{"prompt":{},"client_id":null,"prompt_id":null,"extra_data":{ "client_id":{}, "x":1}}`)))(t)
	require.Empty(t, r.ClientID, "null in the body wins")
	require.Empty(t, r.PromptID)
	require.Equal(t, "null", string(r.RawPromptID))
}

func TestParseRequestKeepsExtraData(t *testing.T) {
	t.Parallel()
	r := must.Get(catalog.ParseRequest([]byte(`{"prompt":{},"extra_data": { "a" :1,"a": 2 } }`)))(t)
	require.Equal(t, `{ "a" :1,"a": 2 }`, string(r.Extra), "without anything to hide the bytes stay")
}

func TestParseRequestRefuses(t *testing.T) {
	t.Parallel()
	const internalError = "500 Internal Server Error\n\nServer got itself in trouble"
	const noPrompt = `{"error": {"type": "no_prompt", "message": "No prompt provided", "details": "No prompt provided", "extra_info": {}}, "node_errors": {}}`
	const badClient = `{"error": {"type": "invalid_client_id", "message": "client_id must be a string", ` +
		`"details": "client_id must be the clientId of a websocket, a string; omit it if there is none", "extra_info": {}}, "node_errors": {}}`
	for body, want := range map[string]string{
		``: internalError, `{`: internalError, `nul`: internalError, "{\"a\":\"\xff\"}": internalError,
		`null`: internalError, `5`: internalError, `true`: internalError,
		`[]`: noPrompt, `["x"]`: noPrompt, `["prompt"]`: internalError, `["front"]`: internalError, `[["number"]]`: noPrompt,
		`"x"`: noPrompt, `"a prompt"`: internalError,
		`{}`: noPrompt, `{"extra_data":null}`: noPrompt,
		`{"number":"x"}`:                              internalError,
		`{"prompt":{},"number":null}`:                 internalError,
		`{"prompt":{},"number":[1]}`:                  internalError,
		`{"prompt":{},"extra_data":null}`:             internalError,
		`{"prompt":{},"extra_data":[]}`:               internalError,
		`{"prompt":{},"extra_data":"x"}`:              internalError,
		`{"prompt":{},"client_id":{}}`:                badClient,
		`{"prompt":{},"client_id":["a"]}`:             badClient,
		`{"prompt":{},"client_id":5}`:                 badClient,
		`{"prompt":{},"extra_data":{"client_id":{}}}`: badClient,
	} {
		_, err := catalog.ParseRequest([]byte(body))
		var answer *catalog.Answer
		require.ErrorAs(t, err, &answer, body)
		require.Equal(t, want, string(answer.Body), body)
		if want == internalError {
			require.Equal(t, 500, answer.Status)
			require.Equal(t, "text/plain; charset=utf-8", answer.ContentType)
		} else {
			require.Equal(t, 400, answer.Status)
			require.Equal(t, "application/json; charset=utf-8", answer.ContentType)
		}
		require.NotContains(t, err.Error(), "prompt_id", "errors do not quote the request")
	}
}

func TestParseRequestNumber(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]pyjson.Number{
		`1`: "1.0", `-2.5`: "-2.5", `" 1_0 "`: "10.0", `true`: "1.0", `"nan"`: "NaN", `"-inf"`: "-Infinity", `Infinity`: "Infinity",
	} {
		r, err := catalog.ParseRequest([]byte(`{"prompt":{},"number":` + in + `}`))
		require.NoError(t, err, in)
		require.Equal(t, want, r.Number, in)
	}
}

func FuzzParseRequest(f *testing.F) {
	for _, v := range []release{older, newer} {
		for _, r := range recordings(f, v) {
			f.Add([]byte(r.Body))
		}
	}
	f.Add([]byte(`{"prompt":{},"extra_data":{"api_key_comfy_org":"secret-secret","a":[{}]},"x":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := catalog.ParseRequest(body)
		if err != nil {
			var answer *catalog.Answer
			if !errors.As(err, &answer) || answer.Status < 400 || len(answer.Body) == 0 {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		for _, part := range [][]byte{r.Graph.Bytes(), r.Extra, r.Secrets, r.Other, r.Targets, r.RawPromptID} {
			if part == nil {
				continue
			}
			if _, err := pyjson.Parse(part); err != nil {
				t.Fatalf("%q: part %q: %v", body, part, err)
			}
		}
		v, _ := pyjson.Parse(r.Extra)
		extra, ok := v.(*pyjson.Object)
		if !ok {
			t.Fatalf("%q: extra_data %q is no object", body, r.Extra)
		}
		for _, key := range []string{"client_id", "api_key_comfy_org", "auth_token_comfy_org"} {
			if extra.Has(key) {
				t.Fatalf("%q: %s is left in %q", body, key, r.Extra)
			}
		}
	})
}

// What "Save" in the web UI writes is no prompt. Whoever posts it is told what it is, in ComfyUI's own shape.
func TestSavedWorkflowIsNoPrompt(t *testing.T) {
	t.Parallel()
	const saved = `{"id": "w", "nodes": [{"id": 1, "type": "SaveImage"}], "links": [], "version": 0.4}`
	for name, body := range map[string]string{
		"as the prompt":  `{"prompt": ` + saved + `, "client_id": "c"}`,
		"as the body":    saved,
		"without links":  `{"prompt": {"nodes": [], "version": 1}}`,
		"with a number":  `{"number": 3, "prompt": ` + saved + `}`,
		"nodes are none": `{"prompt": {"nodes": [], "links": []}}`,
	} {
		_, err := catalog.ParseRequest([]byte(body))
		var answer *catalog.Answer
		require.ErrorAs(t, err, &answer, name)
		require.Equal(t, 400, answer.Status, name)
		require.Contains(t, string(answer.Body), `{"error": {"type": "invalid_prompt", "message": "This is a workflow`, name)
		require.Contains(t, string(answer.Body), `\"Export (API)\"`, name)
		require.Contains(t, string(answer.Body), `"node_errors": {}`, name)
	}
	for name, body := range map[string]string{
		"a node that is called nodes": `{"prompt": {"nodes": {"class_type": "A", "inputs": {}}}}`,
		"beside a prompt":             `{"prompt": {}, "nodes": [], "links": []}`,
	} {
		_, err := catalog.ParseRequest([]byte(body))
		require.NoError(t, err, name)
	}
}

func TestInputFiles(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	graph := parseGraph(t, `{"1":{"class_type":"LoadImage","inputs":{"image":"broken.png","upload":"image"}},
		"2":{"class_type":"LoadImage","inputs":{"image":["1",0]}},
		"3":{"class_type":"Load3D","inputs":{"model_file":"none","image":{"image":"threed/a.png [temp]","mask":"threed/b.png [temp]","n":1},"width":1,"height":1}},
		"4":{"class_type":"SetNode","inputs":{"images":{"__value__":["x.png","up.png","a text. Really"]},"text":"up.png is nice","also":"up.png"}},
		"5":{"class_type":"Other","inputs":{"any":"s/x.wav [output]"}},
		"9":{"class_type":"PreviewAny","inputs":{"source":["1",0]}}}`)
	known := func(r job.FileRef) bool { return r.Filename == "up.png" }
	names := func(files []catalog.InputFile) (list []string) {
		for _, f := range files {
			list = append(list, f.Node+"."+f.Input+"="+f.Value)
		}
		return list
	}
	files := cat.InputFiles(graph, nil, known)
	require.Equal(t, []string{
		"1.image=broken.png", "3.image=threed/a.png [temp]", "3.image=threed/b.png [temp]",
		"4.images=up.png", "4.also=up.png", "5.any=s/x.wav [output]",
	}, names(files))
	require.True(t, files[0].Listed)
	require.False(t, files[1].Listed)
	require.Equal(t, []string{"1.image=broken.png"}, names(cat.InputFiles(graph, []string{"9"}, known)), "only what the outputs need")
	require.NotContains(t, names(cat.InputFiles(graph, nil, nil)), "4.also=up.png")

	var edits []catalog.Edit
	for _, f := range files {
		edits = append(edits, f.Rename("NEW"))
	}
	changed := must.Get(graph.Splice(edits))(t)
	require.Equal(t, len(files), countText(t, changed, "NEW"))
	require.Equal(t, []string{"1.image=NEW"}, names(cat.InputFiles(changed, []string{"9"}, known)))
	require.Equal(t, "broken.png", files[0].Value, "the old graph is as it was")
}

func countText(t *testing.T, g *catalog.Graph, text string) int {
	v := must.Get(pyjson.Parse(g.Bytes()))(t)
	n := 0
	var walk func(pyjson.Value)
	walk = func(v pyjson.Value) {
		switch v := v.(type) {
		case pyjson.String:
			if string(v) == text {
				n++
			}
		case pyjson.Array:
			for _, item := range v {
				walk(item)
			}
		case *pyjson.Object:
			for _, item := range v.All() {
				walk(item)
			}
		}
	}
	walk(v)
	return n
}

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
