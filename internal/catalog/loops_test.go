package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// looping describes the boundaries of loops as ComfyUI 0.38 does, and a node to put between them.
const looping = `{"StartLoop":{"input":{"required":{"mode":["COMFY_DYNAMICCOMBO_V3",{"options":[
{"key":"simple","inputs":{"required":{"num_iterations":["INT",{"default":4,"min":0}]}}}]}],
"cache_iterations":["BOOLEAN",{"default":false,"advanced":true}]},
"optional":{"parent_iteration":["INT",{"forceInput":true}],"initial_iteration_value":["COMFY_MATCHTYPE_V3",{}]},
"hidden":{"dynprompt":["DYNPROMPT"],"execution_list":["EXECUTION_LIST"],"unique_id":["UNIQUE_ID"]}},
"output":["INT","BOOLEAN","BOOLEAN","COMFY_MATCHTYPE_V3","COMFY_MATCHTYPE_V3"],"output_node":false,
"python_module":"comfy_extras.nodes_loop","deprecated":false,"experimental":false,"api_node":false},
"EndLoop":{"input":{"required":{"accumulate":["BOOLEAN",{"default":false}]},
"optional":{"output_value":["COMFY_MATCHTYPE_V3",{}],"next_iteration_value":["COMFY_MATCHTYPE_V3",{}],
"terminations":["COMFY_AUTOGROW_V3",{"template":{"input":{"required":{"termination":["*",{}]}},"prefix":"termination","min":0,"max":50}}]},
"hidden":{"execution_list":["EXECUTION_LIST"],"unique_id":["UNIQUE_ID"]}},
"output":["COMFY_MATCHTYPE_V3"],"output_node":false,"python_module":"comfy_extras.nodes_loop","deprecated":false,"experimental":false,"api_node":false},
"Step":{"input":{"required":{},"optional":{"a":["*",{}],"b":["*",{}]}},"output":["*"],"output_node":false,"python_module":"nodes"},
"Show":{"input":{"required":{"a":["*",{}]}},"output":["*"],"output_node":true,"python_module":"nodes"},
"OwnEnd":{"input":{"required":{"a":["*",{}]},"hidden":{"list":["EXECUTION_LIST"]}},"output":["*"],"output_node":false,
"python_module":"custom_nodes.pack","deprecated":false,"experimental":false,"api_node":false}}`

// wire writes a graph: each word is a node, "id=Class:from,from".
func wire(text string) string {
	inputs := map[string][]string{"StartLoop": {"parent_iteration", "initial_iteration_value"}, "EndLoop": {"output_value", "next_iteration_value", "terminations.termination0"}}
	var nodes []string
	for word := range strings.FieldsSeq(text) {
		id, rest, _ := strings.Cut(word, "=")
		class, from, _ := strings.Cut(rest, ":")
		members := map[string]string{"StartLoop": `"mode":"simple","mode.num_iterations":3,"cache_iterations":false`, "EndLoop": `"accumulate":false`}[class]
		for i, source := range strings.FieldsFunc(from, func(r rune) bool { return r == ',' }) {
			name := append(inputs[class], "a", "b", "c")[i]
			if last, odd := strings.CutPrefix(source, "!"); odd {
				name, source = "accumulate", last
				members = ""
			}
			members = strings.TrimPrefix(members+`,`, ",") + fmt.Sprintf(`%q:[%q,0]`, name, source)
		}
		nodes = append(nodes, fmt.Sprintf(`%q:{"class_type":%q,"inputs":{%s}}`, id, class, members))
	}
	return `{` + strings.Join(nodes, ",") + `}`
}

func TestLoops(t *testing.T) {
	t.Parallel()
	cat := fleet(parseInfo(t, looping))
	for _, tt := range []struct {
		name, graph string
		// kind is the loop_error_type; "" if the prompt is accepted.
		kind, details  string
		nodes, outputs string
	}{
		{"a loop", `5=StartLoop 6=Step:5 7=EndLoop:6 9=Show:7`, "", "", "", ""},
		{"a loop in a subgraph", `194:45=StartLoop 194:46=Step:194:45 194:47=EndLoop:194:46 9=Show:194:47`, "", "", "", ""},
		{"one in another", `1=StartLoop 2=StartLoop:1 3=Step:2 4=EndLoop:3 5=EndLoop:4 9=Show:5`, "", "", "", ""},
		{"one after another inside a third", `1=StartLoop 2=StartLoop:1 3=EndLoop:2 4=StartLoop:1,3 5=EndLoop:4 6=EndLoop:5 9=Show:6`, "", "", "", ""},
		{"a preview inside that the end waits for", `5=StartLoop 6=Show:5 7=EndLoop:5,5,6 9=Show:7`, "", "", "", ""},
		{"not needed", `5=StartLoop 9=Show:8 8=Step`, "", "", "", ""},
		{"no end", `5=StartLoop 9=Show:5`, "loop_start_without_end", "Start Loops without End Loops: 5", "5", "9"},
		{"no start", `7=EndLoop:6 6=Step 9=Show:7`, "loop_end_without_start", "End Loop 7 has no available Start Loop", "7", "9"},
		{
			"two starts", `1=StartLoop 2=StartLoop 6=Step:1,2 7=EndLoop:6 9=Show:7`, "ambiguous_loop_nesting",
			"End Loop 7 can close multiple unrelated Start Loops: 1, 2", "1 2 7", "9",
		},
		{
			"a way out", `5=StartLoop 6=Step:5 7=EndLoop:6 8=Show:6 9=Show:7`, "loop_escape",
			"Start Loop 5 reaches 8 without passing through End Loop 7", "5 7 8", "8 9",
		},
		{
			"two ends", `5=StartLoop 6=Step:5 10=EndLoop:6 7=EndLoop:6 8=Step:10,7 9=Show:8`, "loop_escape",
			"Start Loop 5 reaches 7 without passing through End Loop 10", "10 5 7", "9",
		},
		{
			"decides itself", `5=StartLoop 6=Step:5 7=EndLoop:6,6,6,!6 9=Show:7`, "loop_accumulate_from_body",
			"End Loop 7 accumulate is driven by loop node 6 under Start Loop 5", "5 6 7", "9",
		},
	} {
		verdict := validate(t, cat, newer, wire(tt.graph))
		if tt.kind == "" {
			require.True(t, verdict.Accepted(), "%s: %s", tt.name, verdict.Answer)
			require.False(t, verdict.Doubtful, tt.name)
			continue
		}
		require.False(t, verdict.Accepted(), tt.name)
		require.Equal(t, "prompt_outputs_failed_validation", verdict.Error.String("type"))
		require.True(t, strings.HasSuffix(verdict.Error.String("details"), ": "+tt.details), verdict.Error.String("details"))
		nodes, outputs := strings.Fields(tt.nodes), strings.Fields(tt.outputs)
		require.Equal(t, len(nodes), verdict.NodeErrors.Len(), tt.name)
		for _, id := range nodes {
			entry := verdict.NodeErrors.Object(id)
			require.Equal(t, pyjson.Strings(outputs), entry.Array("dependent_outputs"), tt.name)
			require.Len(t, entry.Array("errors"), 1)
			e := entry.Array("errors")[0].(*pyjson.Object)
			require.Equal(t, "custom_validation_failed "+tt.details, e.String("type")+" "+e.String("details"), tt.name)
			require.Equal(t, marshal(pyjson.NewObject(
				pyjson.Member{Key: "input_name", Value: pyjson.String("loop boundary")},
				pyjson.Member{Key: "loop_error_type", Value: pyjson.String(tt.kind)},
				pyjson.Member{Key: "node_ids", Value: pyjson.Strings(nodes)},
				pyjson.Member{Key: "output_ids", Value: pyjson.Strings(outputs)})), marshal(e.Object("extra_info")), tt.name)
		}
	}
}

// An output that no loop concerns runs, and the answer says what is wrong with the others.
func TestLoopOfOneOutput(t *testing.T) {
	t.Parallel()
	verdict := validate(t, fleet(parseInfo(t, looping)), newer, wire(`5=StartLoop 8=Show:5 1=Step 9=Show:1`))
	require.True(t, verdict.Accepted())
	require.Equal(t, []string{"9"}, verdict.Outputs)
	require.Equal(t, "custom_validation_failed", kinds(verdict, "5"))
}

// The boundary of a custom node pack is the instance's to judge.
func TestForeignLoop(t *testing.T) {
	t.Parallel()
	verdict := validate(t, fleet(parseInfo(t, looping)), newer, wire(`5=StartLoop 7=OwnEnd:5 9=Show:7`))
	require.True(t, verdict.Accepted())
	require.True(t, verdict.Doubtful)
	require.Equal(t, []string{"7: loop_boundary"}, verdict.Unsure)
}

// A node that depends on itself is reported as such, and an end that no output needs makes ComfyUI throw.
func TestLoopsThatAreNotChecked(t *testing.T) {
	t.Parallel()
	cat := fleet(parseInfo(t, looping))
	verdict := validate(t, cat, newer, wire(`5=StartLoop:6 6=Step:5 9=Show:6`))
	require.Equal(t, "dependency_cycle", kinds(verdict, "5"))
	verdict = validate(t, cat, newer, wire(`9=Show:1 1=Step 7=EndLoop:9`))
	require.Equal(t, 500, verdict.Answer.Status)
}

// The work of a large graph is bounded, and so is the answer.
func TestManyLoops(t *testing.T) {
	t.Parallel()
	cat := fleet(parseInfo(t, looping))
	var fan strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&fan, "%d=StartLoop %d=Show:%d ", i, i+10000, i)
	}
	verdict := validate(t, cat, newer, wire(fan.String()))
	require.False(t, verdict.Accepted())
	require.Less(t, len(verdict.Answer.Body), 8<<20)
	var inner strings.Builder // each start reads all others before it, so that descendants are many
	inner.WriteString("0=StartLoop ")
	for i := range 3000 {
		fmt.Fprintf(&inner, "%d=StartLoop:%d,%d ", i+1, i, i/2)
	}
	verdict = validate(t, cat, newer, wire(inner.String()+"z=Show:2999"))
	require.True(t, verdict.Accepted(), "too many to be sure")
	require.Equal(t, []string{"0: loop_boundary"}, verdict.Unsure)
}

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

// Each of these graphs was accepted by a real server, whose worker then died.
func TestHazards(t *testing.T) {
	t.Parallel()
	const good = `"1":{"class_type":"EmptyImage","inputs":{"width":64,"height":64,"batch_size":1,"color":0}}`
	for _, v := range []release{older, newer} {
		cat := fleet(info(t, v))

		verdict := validate(t, cat, v, image(good+`,"2":{"class_type":"ImageInvert" }`))
		require.True(t, verdict.Accepted())
		require.Equal(t, image(good+`,"2":{"class_type":"ImageInvert" , "inputs": {}}`), string(verdict.Graph.Bytes()),
			"a node that nothing needs gets empty inputs")

		verdict = validate(t, cat, v, image(good+`,"2":{"inputs":null,"class_type":"ImageInvert"}`))
		if v == newer {
			require.Equal(t, 500, verdict.Answer.Status)
		} else {
			require.True(t, verdict.Accepted())
			require.Equal(t, image(good+`,"2":{"inputs":{},"class_type":"ImageInvert"}`), string(verdict.Graph.Bytes()))
		}

		verdict = validate(t, cat, v, `{`+good+`,"9":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":"t","other":["99",0]}}}`)
		require.Equal(t, "Exception when validating node: '99'", verdict.Error.String("details"), "an undeclared link to nowhere")
		require.Equal(t, "exception_during_validation", kinds(verdict, "9"))

		verdict = validate(t, cat, v, image(good[:len(good)-2]+`,"other":["99",0]}}`))
		require.False(t, verdict.Accepted(), "the same, upstream of the output")

		verdict = validate(t, cat, v, image(`"1":{"class_type":"ImageInvert","inputs":{"image":["2",0]}},"2":{"class_type":"ImageInvert","inputs":{"image":["3",0]}},`+
			`"3"`+good[3:len(good)-2]+`,"other":["99",true]}}`))
		require.False(t, verdict.Accepted(), "the same, far upstream")

		verdict = validate(t, cat, v, image(good+`,"2":{"class_type":"ImageInvert","inputs":{"image":["99",0]}}`))
		require.True(t, verdict.Accepted(), "nothing follows the links of a node that nothing needs")

		verdict = validate(t, cat, v, `{`+good+`,"5":{"class_type":"PreviewImage","inputs":{"images":["1",0]}},`+
			`"9":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":"t","other":["99",0]}}}`)
		require.True(t, verdict.Accepted())
		require.Equal(t, []string{"5"}, verdict.Outputs, "the good output runs")
		require.Equal(t, "exception_during_validation", kinds(verdict, "9"))

		verdict = validate(t, cat, v, `{`+good+`,"2":{"class_type":"ImageInvert"},`+
			`"9":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":"t","other":["2",0]}}}`)
		require.True(t, verdict.Accepted())
		requireHarmless(t, verdict)
	}
}

// A prompt of an API client has no _meta, at which the step that replaces old
// classes throws.
func TestReplacedClass(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	graph := image(`"1":{"class_type":"EmptyImage","inputs":{"width":64,"height":64,"batch_size":1,"color":0}},"2":{"class_type":"SDV_img2vid_Conditioning","inputs":{}}`)
	verdict := validate(t, cat, newer, graph)
	require.True(t, verdict.Accepted())
	require.Contains(t, string(verdict.Graph.Bytes()), `"inputs":{}, "_meta": {"title": "SDV_img2vid_Conditioning"}}`)
	r := cat.Requirements(verdict.Graph, verdict.Outputs, nil)
	require.Empty(t, info(t, newer).Satisfies(r))

	verdict = validate(t, cat, newer, image(`"1":{"class_type":"Load3DAnimation","inputs":{"x":["2",0]},"_meta":{"title":"A"}},"2":{"class_type":"EmptyImage","inputs":{}}`))
	require.Equal(t, "required_input_missing required_input_missing required_input_missing required_input_missing", kinds(verdict, "2"),
		"what a replaced node links to is checked")
	verdict = validate(t, cat, newer, image(`"1":{"class_type":"Load3DAnimation","inputs":{"x":["99",0]},"_meta":{"title":"A"}}`))
	require.Equal(t, "exception_during_inner_validation", kinds(verdict, "1"))

	plain := parseInfo(t, string(infoBody(t, newer)))
	require.Equal(t, []string{"node class SDV_img2vid_Conditioning"}, plain.Satisfies(r), "an instance that does not replace it")
	require.False(t, validate(t, fleet(plain), newer, graph).Accepted())
	require.False(t, validate(t, cat, "0.13.0", graph).Accepted(), "older servers do not replace")
}
