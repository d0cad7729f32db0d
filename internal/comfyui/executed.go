package comfyui

import "github.com/comfyhub/comfyhub/internal/pyjson"

// ExecutedFromOutputs writes the executed message of each node in the outputs
// of a history entry, a raw JSON object by node id. The outputs come through
// byte for byte. It serves those who missed the messages.
func ExecutedFromOutputs(outputs []byte, id string) [][]byte {
	var out [][]byte
	pyjson.Members(outputs, func(node string, output []byte) {
		out = append(out, Executed(id, node, output))
	})
	return out
}

// Executed writes the message of a node's UI output, raw JSON.
func Executed(id, node string, output []byte) []byte {
	frame := append([]byte(`{"type": "executed", "data": {"node": `), quoted(node)...)
	frame = append(append(frame, `, "display_node": `...), quoted(node)...)
	frame = append(append(frame, `, "output": `...), output...)
	frame = append(append(frame, `, "prompt_id": `...), quoted(id)...)
	return append(frame, "}}"...)
}
