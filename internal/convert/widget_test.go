package convert

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// elements is a class for each kind of input whose widgets are not one for an input.
const elements = `{
	"Save": {"input": {"required": {"video": ["VIDEO", {}], "prefix": ["STRING", {"default": "video"}], "codec": ["COMFY_DYNAMICCOMBO_V3", {"options": [
			{"key": "auto", "inputs": {"required": {}}},
			{"key": "h264", "inputs": {"required": {"mask": ["MASK", {}], "seed": ["INT", {"default": 3}]}, "optional": {"encoding": ["COMFY_DYNAMICCOMBO_V3", {"options": [
				{"key": "copy", "inputs": {}}, {"key": "again", "inputs": {"required": {"crf": ["FLOAT", {"default": 23.0}]}}}]}]}}},
			{"key": "many", "inputs": {"required": {"images": ["COMFY_AUTOGROW_V3", {"template": {"prefix": "image", "min": 1, "max": 9, "input": {"required": {"image": ["IMAGE", {}]}}}}],
				"text": ["STRING", {}], "tries": ["INT", {"control_after_generate": true}]}}}]}],
		"last": ["BOOLEAN", {"default": true}]}}},
	"Batch": {"input": {"required": {"images": ["COMFY_AUTOGROW_V3", {"template": {"prefix": "image", "min": 1, "max": 9, "input": {"required": {"image": ["STRING", {"forceInput": true}]}}}}], "fps": ["FLOAT", {"default": 8.0}]}}},
	"Loras": {"input": {"required": {"loras": ["COMFY_DYNAMICGROUP_V3", {"min": 1, "max": 3, "template": {"required": {"name": ["COMBO", {"options": ["a", "b"]}], "strength": ["FLOAT", {"default": 1.0}]},
		"optional": {"tries": ["INT", {"control_after_generate": true}]}}}], "last": ["STRING", {}]}}},
	"Draw": {"input": {"required": {"box": ["BOUNDING_BOX", {}], "color": ["COLOR", {}], "colors": ["COLORS", {}], "boxes": ["BOUNDING_BOXES", {}], "curve": ["CURVE", {}], "range": ["RANGE", {}], "layers": ["COMPOSITOR", {}],
		"rate": ["FLOAT,INT", {"widgetType": "FLOAT", "default": 25.0}], "last": ["INT", {}]}}},
	"Compare": {"input": {"required": {"view": ["IMAGECOMPARE", {}], "last": ["INT", {}]}}},
	"Pick": {"input": {"required": {"name": ["COMBO", {"options": ["a", "b"], "control_after_generate": true}], "last": ["INT", {}]}}},
	"CustomCombo": {"input": {"required": {"choice": ["COMBO", {"options": []}]}}},
	"View": {"input": {"required": {"model_file": ["COMBO", {"options": ["a", "b"]}], "viewport_state": ["LOAD_3D", {}], "width": ["INT", {}]}}},
	"Render": {"input": {"required": {"image": ["LOAD_3D", {}]}}},
	"Camera": {"input": {"required": {"image": ["WEBCAM", {}]}}},
	"Grow": {"input": {"required": {"texts": ["COMFY_AUTOGROW_V3", {"template": {"prefix": "t", "input": {"required": {"t": ["STRING", {}]}}}}]}}},
	"Later": {"input": {"required": {"what": ["COMFY_DYNAMICTREE_V9", {}]}}},
	"Nothing": {"input": {"required": {"what": ["COMFY_DYNAMICCOMBO_V3", {}]}}}
}`

func TestWidgets(t *testing.T) {
	t.Parallel()
	known := parsed(t, elements)
	for name, c := range map[string]struct{ class, values, want string }{
		"a combo that brings nothing":  {"Save", `["v", "auto", false]`, `"prefix": "v", "codec": "auto", "last": false`},
		"a combo in a combo":           {"Save", `["v", "h264", 5, "again", 18, false]`, `"prefix": "v", "codec": "h264", "codec.seed": 5, "codec.encoding": "again", "codec.encoding.crf": 18, "last": false`},
		"the inner one brings nothing": {"Save", `["v", "h264", 5, "copy", false]`, `"prefix": "v", "codec": "h264", "codec.seed": 5, "codec.encoding": "copy", "last": false`},
		"a companion within":           {"Save", `["v", "many", "x", 2, "randomize", false]`, `"prefix": "v", "codec": "many", "codec.text": "x", "codec.tries": 2, "last": false`},
		"no companion within":          {"Save", `["v", "many", "x", 2, false]`, `"prefix": "v", "codec": "many", "codec.text": "x", "codec.tries": 2, "last": false`},
		"values that end within":       {"Save", `["v", "h264"]`, `"prefix": "v", "codec": "h264", "codec.seed": 3, "codec.encoding": "copy", "last": true`},
		"no values":                    {"Save", `[]`, `"prefix": "video", "codec": "auto", "last": true`},
		"by name":                      {"Save", `{"codec": "h264", "codec.encoding": "again", "last": false}`, `"prefix": "video", "codec": "h264", "codec.seed": 3, "codec.encoding": "again", "codec.encoding.crf": 23.0, "last": false`},
		"inputs that grow":             {"Batch", `[12]`, `"fps": 12`},
		"a table": {
			"Loras", `[2, "b", 0.5, 3, "fixed", "a", 2, 4, "randomize", "x"]`,
			`"loras.0.name": "b", "loras.0.strength": 0.5, "loras.0.tries": 3, "loras.1.name": "a", "loras.1.strength": 2, "loras.1.tries": 4, "last": "x"`,
		},
		"a table of fewer than it needs": {"Loras", `[0, "b", 0.5, 3, "fixed", "x"]`, `"loras.0.name": "b", "loras.0.strength": 0.5, "loras.0.tries": 3, "last": "x"`},
		"a box and its sides": {
			"Draw", `[{"x": 1}, 1, 2, 3, 4, "#fff", ["#f00"], [], {"points": []}, {"min": 1}, {"a": 1}, 30, 7]`,
			`"box": {"x": 1}, "color": "#fff", "colors": {"__value__": ["#f00"]}, "boxes": {"__value__": []}, "curve": {"points": []}, "range": {"min": 1}, "layers": {"a": 1}, "rate": 30, "last": 7`,
		},
		"new ones": {"Draw", `[]`, `"box": {"x": 0, "y": 0, "width": 512, "height": 512}, "color": "#000000", "colors": {"__value__": []}, "boxes": {"__value__": []},
			"curve": {"points": [[0, 0], [1, 1]], "interpolation": "monotone_cubic"}, "range": {"min": 0, "max": 1}, "layers": {}, "rate": 25.0, "last": 0`},
		"one that is not saved": {"Compare", `[7]`, `"view": {"__value__": ["", ""]}, "last": 7`},
		"one with buttons before it": {
			"View", `["b", "upload3dmodel", "uploadExtraResources", "clear", "", 7]`,
			`"model_file": "b", "viewport_state": {"image": "", "mask": "", "normal": "", "camera_info": null, "recording": "", "model_3d_info": []}, "width": 7`,
		},
		"options that the user wrote": {"CustomCombo", `["y", 0, "x", "y", ""]`, `"choice": "y", "option1": "x", "option2": "y", "option3": "", "index": 1`},
		"and chose none of":           {"CustomCombo", `["z", 0, "x"]`, `"choice": "z", "option1": "x", "option2": "", "index": -1`},
		"a combo's companions":        {"Pick", `["b", "increment-wrap", "/x/", 7]`, `"name": "b", "last": 7`},
	} {
		got, err := ToAPI(parsed(t, `{"nodes": [{"id": 1, "type": "`+c.class+`", "widgets_values": `+c.values+`}]}`), 1<<20, known.Object)
		require.NoError(t, err, name)
		require.Equal(t, string(pyjson.Marshal(parsed(t, "{"+c.want+"}"))), string(pyjson.Marshal(got.Object("1").Object("inputs"))), name)
	}
}

// The inputs that a combo brings, and those that grow, are linked under their names.
func TestLinksToDynamicInputs(t *testing.T) {
	t.Parallel()
	known := parsed(t, elements)
	got, err := ToAPI(parsed(t, `{"nodes": [{"id": 1, "type": "Compare", "order": 0, "widgets_values": [1]},
		{"id": 2, "type": "Save", "order": 1, "inputs": [{"name": "codec.mask", "link": 1}, {"name": "codec.seed", "widget": {"name": "codec.seed"}, "link": 2}], "widgets_values": ["v", "h264", 5, "copy", false]},
		{"id": 3, "type": "Batch", "order": 2, "inputs": [{"name": "images.image0", "link": 3}, {"name": "images.image1", "link": 4}, {"name": "images.image2", "link": null}], "widgets_values": [1]}],
		"links": [[1, 1, 0, 2, 0, "MASK"], [2, 1, 1, 2, 1, "INT"], [3, 1, 0, 3, 0, "IMAGE"], [4, 1, 1, 3, 1, "IMAGE"]]}`), 1<<20, known.Object)
	require.NoError(t, err)
	require.Equal(t, `{"prefix": "v", "codec": "h264", "codec.seed": ["1", 1], "codec.encoding": "copy", "last": false, "codec.mask": ["1", 0]}`,
		string(pyjson.Marshal(got.Object("2").Object("inputs"))))
	require.Equal(t, `{"fps": 1, "images.image0": ["1", 0], "images.image1": ["1", 1]}`, string(pyjson.Marshal(got.Object("3").Object("inputs"))))
}

// A node whose values cannot be told apart is named, with the reason.
func TestRefusedWidgets(t *testing.T) {
	t.Parallel()
	known := parsed(t, elements)
	for node, says := range map[string]string{
		`"Save", "widgets_values": ["v", "av1", false]`:  "node 1 (Save): codec has a value that its class does not offer, so the values after it cannot be told apart",
		`"Save", "widgets_values": ["v", 7, false]`:      "node 1 (Save): codec has a value that its class does not offer, so the values after it cannot be told apart",
		`"Loras", "widgets_values": [4]`:                 "node 1 (Loras): loras has more rows than its class allows",
		`"Loras", "widgets_values": [99999999999999999]`: "",
		`"Render", "widgets_values": [""]`:               "node 1 (Render): image is rendered in the browser when the workflow is queued",
		`"Camera", "widgets_values": [""]`:               "node 1 (Camera): image is recorded in the browser when the workflow is queued",
		`"Grow", "widgets_values": ["a", "b"]`:           "node 1 (Grow): texts grows by widgets, and their number is not saved",
		`"Later"`:                                        "node 1 (Later): what is of the kind COMFY_DYNAMICTREE_V9, which the hub cannot expand",
		`"Nothing"`:                                      "node 1 (Nothing): no value for what",
	} {
		_, err := ToAPI(parsed(t, `{"nodes": [{"id": 1, "type": `+node+`}]}`), 1<<20, known.Object)
		if says == "" {
			require.NoError(t, err, node)
			continue
		}
		require.EqualError(t, err, says, node)
		require.False(t, strings.HasSuffix(says, "."))
	}
}

// A subgraph's widget that has no value of its own has that of the first widget inside, also
// for the other inputs that it leads to.
func TestWidgetsOfSubgraphs(t *testing.T) {
	t.Parallel()
	const workflow = `{"nodes": [{"id": 1, "type": "outer", "widgets_values": %}], "definitions": {"subgraphs": [
		{"id": "outer", "inputs": [{"name": "seed"}], "nodes": [{"id": 2, "type": "inner", "inputs": [{"name": "value", "widget": {"name": "value"}, "link": 1}]}, {"id": 3, "type": "Load", "inputs": [{"name": "any", "link": 2}], "widgets_values": ["a"]}],
			"links": [{"id": 1, "origin_id": -10, "origin_slot": 0, "target_id": 2, "target_slot": 0}, {"id": 2, "origin_id": -10, "origin_slot": 0, "target_id": 3, "target_slot": 0}]},
		{"id": "inner", "inputs": [{"name": "value"}], "nodes": [{"id": 4, "type": "Sample", "inputs": [{"name": "seed", "widget": {"name": "seed"}, "link": 3}], "widgets_values": [5, "fixed"]}],
			"links": [{"id": 3, "origin_id": -10, "origin_slot": 0, "target_id": 4, "target_slot": 0}]}]}}`
	for values, want := range map[string]string{`[7]`: `7`, `[]`: `5`} {
		got, err := ToAPI(parsed(t, strings.Replace(workflow, "%", values, 1)), 1<<20, find(t))
		require.NoError(t, err)
		require.Equal(t, `{"name": "a", "any": `+want+`}`, string(pyjson.Marshal(got.Object("1:3").Object("inputs"))))
		require.Equal(t, `{"seed": `+want+`, "cfg": 8.0, "sampler": "x"}`, string(pyjson.Marshal(got.Object("1:2:4").Object("inputs"))))
	}
}
