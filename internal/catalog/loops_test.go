package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
