package comfyui

import "github.com/comfyhub/comfyhub/internal/pyjson"

// EntryParts is what a history entry is made of, for one that no instance wrote.
type EntryParts struct {
	// Number is a JSON literal.
	Number string
	ID     string
	// Graph and Extra are raw JSON.
	Graph, Extra []byte
	// Outputs are the ids of the output nodes that were to execute.
	Outputs []string
	// Success is true for a run that went well.
	Success bool
	// Messages are those of the run, in order.
	Messages []EntryMessage
	// Results are the UI outputs of nodes, in the order in which they executed.
	Results []EntryResult
}

// EntryResult is the UI output of a node.
type EntryResult struct {
	Node string
	// DisplayNode is the node of the client's graph that stands for it.
	DisplayNode string
	// Output is raw JSON.
	Output []byte
}

// NewEntry writes a history entry in Python's style.
func NewEntry(p EntryParts) []byte {
	out := append([]byte(`{"prompt": [`), p.Number...)
	out = append(out, ", "...)
	out = pyjson.AppendString(out, p.ID)
	out = append(out, ", "...)
	out = append(out, p.Graph...)
	out = append(out, ", "...)
	out = append(out, p.Extra...)
	out = append(out, ", "...)
	out = pyjson.Append(out, pyjson.Strings(p.Outputs))
	out = append(out, `], "outputs": {`...)
	for i, r := range p.Results {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(append(pyjson.AppendString(out, r.Node), ": "...), r.Output...)
	}
	out = append(out, `}, "status": {"status_str": `...)
	if p.Success {
		out = append(out, `"success", "completed": true, "messages": [`...)
	} else {
		out = append(out, `"error", "completed": false, "messages": [`...)
	}
	for i, m := range p.Messages {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(out, '[')
		out = pyjson.AppendString(out, m.Type)
		out = append(out, ", "...)
		out = append(out, m.Data...)
		out = append(out, ']')
	}
	out = append(out, `]}, "meta": {`...)
	for i, r := range p.Results {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(out, r.meta()...)
	}
	return append(out, "}}"...)
}

// meta tells, by the node's id, where the node comes from. Of one that another
// node has made only its place in the client's graph is known.
func (r EntryResult) meta() []byte {
	node, display := quoted(r.Node), quoted(r.DisplayNode)
	if r.DisplayNode == "" {
		display = node
	}
	out := append([]byte(nil), node...)
	out = append(append(out, `: {"node_id": `...), node...)
	out = append(append(out, `, "display_node": `...), display...)
	out = append(append(out, `, "parent_node": null, "real_node_id": `...), display...)
	return append(out, '}')
}
