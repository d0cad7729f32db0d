package catalog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// loras describes a loader like LoadLoraModel of ComfyUI 0.38, whose rows offer these files.
func loras(files string) string {
	return `{"Load":{"input":{"required":{"loras":["COMFY_DYNAMICGROUP_V3",{"template":{
"required":{"lora_name":["COMBO",{"options":[` + files + `]}],"strength":["FLOAT",{"default":1.0,"min":-100.0,"max":100.0}]},
"optional":{"on":["BOOLEAN",{}]}},"min":1,"max":3,"group_name":"LoRA"}]}},"output":["MODEL"],"output_node":true,
"python_module":"comfy_extras.nodes_lora","api_node":false,"deprecated":false,"experimental":false}}`
}

func TestDynamicGroup(t *testing.T) {
	t.Parallel()
	known := func(files string) *catalog.Info { // of which the hub makes all checks
		return parseInfo(t, strings.Replace(loras(files), "comfy_extras.nodes_lora", "nodes", 1))
	}
	cat := fleet(known(`"a.safetensors"`), known(`"b.safetensors"`))
	for inputs, want := range map[string]string{
		`"loras.0.lora_name":"a.safetensors","loras.0.strength":"1.5"`:                                                      "",
		`"loras.2.lora_name":"b.safetensors","loras.2.strength":1,"loras.0.lora_name":"a.safetensors","loras.0.strength":1`: "",
		`"loras.0.lora_name":"a.safetensors"`:                                                                               "required_input_missing: strength",
		`"loras.0.lora_name":"c.safetensors","loras.0.strength":1`:                                                          "value_not_in_list: loras.0.lora_name: 'c.safetensors' not in ['a.safetensors', 'b.safetensors']",
		`"loras.0.lora_name":"a.safetensors","loras.0.strength":101`:                                                        "value_bigger_than_max: loras.0.strength",
		``:                                  "invalid_dynamic_input: DynamicGroup input 'loras' received 0 rows; expected between 1 and 3.",
		`"loras":7`:                         "invalid_dynamic_input: DynamicGroup input 'loras' received 0 rows; expected between 1 and 3.",
		`"loras.3.strength":1`:              "invalid_dynamic_input: DynamicGroup input 'loras.3.strength' exceeds the index limit of 2 (max=3).",
		`"loras.99999999999999999999.on":1`: "invalid_dynamic_input: DynamicGroup input 'loras.99999999999999999999.on' exceeds the index limit of 2 (max=3).",
		`"loras.01.strength":1`:             "invalid_dynamic_input: Invalid DynamicGroup input key 'loras.01.strength'; expected 'loras.<index>.<template field>'.",
		`"loras.-1.strength":1`:             "invalid_dynamic_input: Invalid DynamicGroup input key 'loras.-1.strength'; expected 'loras.<index>.<template field>'.",
		`"loras.١.strength":1`:              "invalid_dynamic_input: Invalid DynamicGroup input key 'loras.١.strength'; expected 'loras.<index>.<template field>'.",
		`"loras.0":1`:                       "invalid_dynamic_input: Invalid DynamicGroup input key 'loras.0'; expected 'loras.<index>.<template field>'.",
		`"loras.0.other":1`:                 "invalid_dynamic_input: Invalid DynamicGroup input key 'loras.0.other'; expected 'loras.<index>.<template field>'.",
		`"loras.0.strength.x":1`:            "invalid_dynamic_input: Invalid DynamicGroup input key 'loras.0.strength.x'; expected 'loras.<index>.<template field>'.",
	} {
		verdict := validate(t, cat, newer, `{"1":{"class_type":"Load","inputs":{`+inputs+`}}}`)
		if want == "" {
			require.True(t, verdict.Accepted(), "%s: %s", inputs, verdict.Answer)
			continue
		}
		require.False(t, verdict.Accepted(), inputs)
		first := verdict.NodeErrors.Object("1").Array("errors")
		require.Len(t, first, 1, inputs)
		require.Equal(t, want, errorText(t, first[0]), inputs)
	}
}

// The files of rows choose the instance, and each instance's files are offered to all.
func TestFilesOfDynamicGroups(t *testing.T) {
	t.Parallel()
	one, other := parseInfo(t, loras(`"a.safetensors"`)), parseInfo(t, loras(`"sub\\b.safetensors"`))
	cat := fleet(one, other)
	require.Contains(t, string(cat.ObjectInfo(nil).Body()), `"options": ["a.safetensors", "sub\\b.safetensors"]`)
	graph := parseGraph(t, `{"1":{"class_type":"Load","inputs":{"loras.0.lora_name":"sub/b.safetensors","loras.0.strength":1}}}`)
	needs := cat.Requirements(graph, nil, nil)
	require.Equal(t, []catalog.Choice{{Class: "Load", Input: "loras.0.lora_name", Value: "sub/b.safetensors"}}, needs.Choices)
	require.Equal(t, []string{"Load.loras.0.lora_name: sub/b.safetensors"}, one.Satisfies(needs))
	require.Empty(t, other.Satisfies(needs))
	require.Len(t, other.Respell(graph, nil), 1)
	// A file that is added makes no other version of the class.
	require.Empty(t, parseInfo(t, loras(`"sub\\b.safetensors","z.safetensors"`)).Satisfies(needs))
}

// What stands for several inputs in a way that the hub does not know is the instance's to judge.
func TestForeignDynamicInput(t *testing.T) {
	t.Parallel()
	cat := fleet(parseInfo(t, strings.ReplaceAll(loras(`"a.safetensors"`), "COMFY_DYNAMICGROUP_V3", "COMFY_DYNAMICGROUP_V4")))
	for _, inputs := range []string{``, `"loras.first.lora_name":"c.safetensors"`, `"loras":[1]`, `"loras":1000`} {
		verdict := validate(t, cat, newer, `{"1":{"class_type":"Load","inputs":{`+inputs+`}}}`)
		if inputs == `"loras":[1]` {
			require.False(t, verdict.Accepted(), "no link can be so")
			continue
		}
		require.True(t, verdict.Accepted(), "%s: %s", inputs, verdict.Answer)
		require.Equal(t, []string{"1: unknown_input_type"}, verdict.Unsure)
		require.True(t, verdict.Doubtful)
	}
	// A type of a custom node pack is none of these.
	cat = fleet(parseInfo(t, `{"N":{"input":{"required":{"x":["COMFY_THING",{}]}},"output":[],"output_node":true}}`))
	require.False(t, validate(t, cat, newer, `{"1":{"class_type":"N","inputs":{}}}`).Accepted())
}

// errorText is the type and the details of an error of a node.
func errorText(t *testing.T, v pyjson.Value) string {
	t.Helper()
	e, ok := v.(*pyjson.Object)
	require.True(t, ok)
	return e.String("type") + ": " + e.String("details")
}
