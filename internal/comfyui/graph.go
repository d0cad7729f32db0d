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

// socketClass reports whether output nodes of a class send their pictures over the socket and
// save them nowhere: ComfyUI's own, and the one of comfyui-tooling-nodes, which
// Krita's plugin uses. The record of a run shows none of these pictures.
func socketClass(class string) bool {
	return class == "SaveImageWebsocket" || class == "ETN_SendImageWebSocket"
}

// SocketNodes returns the nodes of a graph whose results exist only in messages, in the order
// of the graph.
func SocketNodes(graph []byte) (nodes []string) {
	v, err := pyjson.Parse(graph)
	if err != nil {
		return nil
	}
	o, _ := v.(*pyjson.Object)
	for id, v := range o.All() {
		if node, _ := v.(*pyjson.Object); socketClass(node.String("class_type")) {
			nodes = append(nodes, id)
		}
	}
	return nodes
}

// OnlyBySocket returns one of the output nodes whose results exist only in messages, or "".
// Who has missed the messages of such a run has lost its results. See [SocketNodes] where the
// output nodes are not known.
func OnlyBySocket(graph []byte, outputs []string) string {
	for _, node := range outputs {
		if socketClass(ClassOf(graph, node)) {
			return node
		}
	}
	return ""
}
