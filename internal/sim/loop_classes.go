package sim

import "github.com/comfyhub/comfyhub/internal/pyjson"

// loopClasses are the classes of loops: what /object_info says of them, but for what loopInfo adds.
// Only the mode "simple" is there, which is all that is simulated.
const loopClasses = `{"StartLoop": {"input": {"required": {"mode": ["COMFY_DYNAMICCOMBO_V3", {"tooltip": "The loop iteration mode.", "options": [
{"key": "simple", "inputs": {"required": {"num_iterations": ["INT", {"default": 4, "min": 0}]}}}]}],
"cache_iterations": ["BOOLEAN", {"advanced": true, "default": false}]}, "optional": {
"initial_iteration_value": ["COMFY_MATCHTYPE_V3", {"template": {"template_id": "carried_value", "allowed_types": "*"}}]},
"hidden": {"dynprompt": ["DYNPROMPT"], "execution_list": ["EXECUTION_LIST"], "unique_id": ["UNIQUE_ID"]}},
"output": ["INT", "BOOLEAN", "BOOLEAN", "COMFY_MATCHTYPE_V3", "COMFY_MATCHTYPE_V3"],
"output_name": ["iteration_index", "is_first", "is_last", "list_item", "current_iteration_value"],
"output_matchtypes": [null, null, null, "list_item", "carried_value"], "display_name": "Start Loop", "category": "utilities/looping"},
"EndLoop": {"input": {"required": {"accumulate": ["BOOLEAN", {"default": false}]}, "optional": {
"output_value": ["COMFY_MATCHTYPE_V3", {"template": {"template_id": "output_value", "allowed_types": "*"}}],
"next_iteration_value": ["COMFY_MATCHTYPE_V3", {"template": {"template_id": "carried_value", "allowed_types": "*"}}]},
"hidden": {"execution_list": ["EXECUTION_LIST"], "unique_id": ["UNIQUE_ID"]}},
"output": ["COMFY_MATCHTYPE_V3"], "output_is_list": [true], "output_name": ["outputs"], "output_matchtypes": ["output_value"],
"display_name": "End Loop", "category": "utilities/looping"},
"LoopIteration": {"input": {"required": {"iteration_index": ["INT", {}], "is_first": ["BOOLEAN", {}], "is_last": ["BOOLEAN", {}],
"reuse_cache": ["BOOLEAN", {}]}, "optional": {"list_item": ["*", {}], "current_iteration_value": ["*", {}]}},
"output": ["INT", "BOOLEAN", "BOOLEAN", "*", "*"], "output_is_list": [false, false, false, false, true], "dev_only": true},
"LoopProgress": {"input": {"required": {"start_id": ["STRING", {"multiline": false}], "position": ["INT", {}], "total": ["INT", {}]}},
"output": ["INT"], "output_node": true, "dev_only": true},
"LoopResult": {"input": {"required": {"close_id": ["STRING", {"multiline": false}]}, "hidden": {"execution_list": ["EXECUTION_LIST"]}},
"output": [], "output_node": true, "dev_only": true}}`

// loopInfo returns the descriptions of the classes of loops, as whole as the web UI wants them: it
// does not open if one class has no category.
func loopInfo() *pyjson.Object {
	v, _ := pyjson.Parse([]byte(loopClasses))
	classes, _ := v.(*pyjson.Object)
	out := &pyjson.Object{}
	for name := range classes.All() {
		of := classes.Object(name)
		outputs := of.Array("output")
		order := &pyjson.Object{}
		for group, inputs := range of.Object("input").All() {
			if inputs, ok := inputs.(*pyjson.Object); ok {
				order.Set(group, pyjson.Strings(inputs.Keys()))
			}
		}
		no, none := make(pyjson.Array, len(outputs)), make(pyjson.Array, len(outputs))
		for i := range outputs {
			no[i], none[i] = pyjson.Bool(false), pyjson.Null{}
		}
		info := dict("input", of.Object("input"), "input_order", order, "is_input_list", true, "output", outputs,
			"output_is_list", no, "output_name", outputs, "output_tooltips", none, "output_matchtypes", nil,
			"name", name, "display_name", nil, "description", "", "python_module", "comfy_extras.nodes_loop", "category", "sd",
			"output_node", false, "deprecated", false, "experimental", false, "dev_only", false, "api_node", false,
			"price_badge", nil, "search_aliases", nil, "essentials_category", nil, "has_intermediate_output", false)
		for key, v := range of.All() {
			info.Set(key, v)
		}
		out.Set(name, info)
	}
	return out
}
