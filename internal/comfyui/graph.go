package comfyui

import "github.com/comfyhub/comfyhub/internal/pyjson"

// ClassOf returns the class of a node of a graph, or "".
func ClassOf(graph []byte, node string) string {
	v, err := pyjson.Parse(graph)
	if err != nil {
		return ""
	}
	o, _ := v.(*pyjson.Object)
	return o.Object(node).String("class_type")
}

// OnlyBySocket returns an output node whose results exist only in messages, or "".
// Who has missed the messages of such a run has lost its results.
func OnlyBySocket(graph []byte, outputs []string) string {
	for _, node := range outputs {
		if ClassOf(graph, node) == "SaveImageWebsocket" {
			return node
		}
	}
	return ""
}
