package comfyui

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// The types of messages that ComfyUI itself sends. Custom nodes send others.
const (
	TypeStatus               = "status"
	TypeExecutionStart       = "execution_start"
	TypeExecutionCached      = "execution_cached"
	TypeExecuting            = "executing"
	TypeProgress             = "progress"
	TypeProgressState        = "progress_state"
	TypeExecuted             = "executed"
	TypeExecutionSuccess     = "execution_success"
	TypeExecutionError       = "execution_error"
	TypeExecutionInterrupted = "execution_interrupted"
	TypeFeatureFlags         = "feature_flags"
	// AssetMessages is how the types of those begin that tell everybody how far the scan
	// for assets is.
	AssetMessages = "assets."
)

// Message is a text frame as far as a hub has to understand it. What it
// refers to is part of the frame, not a copy.
type Message struct {
	Type string
	// Data is the raw value of "data", nil when there is none.
	Data []byte
	// PromptID is data.prompt_id, "" when there is none: so is the
	// executing message that a socket gets when it reconnects in mid-run.
	PromptID string
	// Node is data.node, of executing, executed and progress.
	Node string
	// DisplayNode is data.display_node: the node of the client's graph that
	// Node was expanded from.
	DisplayNode string
	// NodeNull says that data.node is there and null.
	NodeNull bool
}

// ParseMessage reads a text frame. It is cheap, takes NaN, and reports false
// for what is not a JSON object with a type.
func ParseMessage(frame []byte) (Message, bool) {
	var m Message
	s := pyjson.Scanner{Data: frame}
	ok := s.Object(func(key string) bool {
		place, ok := s.Value()
		if !ok {
			return false
		}
		switch raw := place.Of(frame); key {
		case "type":
			m.Type = pyjson.Unquote(raw)
		case "data":
			m.Data = raw
		}
		return true
	})
	if !ok || m.Type == "" {
		return Message{}, false
	}
	pyjson.Members(m.Data, func(key string, value []byte) {
		switch key {
		case "prompt_id":
			m.PromptID = pyjson.Unquote(value)
		case "node":
			m.Node, m.NodeNull = pyjson.Unquote(value), string(value) == "null"
		case "display_node":
			m.DisplayNode = pyjson.Unquote(value)
		}
	})
	return m, true
}

// Ends reports whether the message is the one that always ends a run:
// executing with node null.
func (m Message) Ends() bool { return m.Type == TypeExecuting && m.NodeNull }

// Shows returns the node of the client's graph that m, an executing message, tells of.
func (m Message) Shows() string {
	if m.DisplayNode != "" {
		return m.DisplayNode
	}
	return m.Node
}

// Raw returns a member of data as raw JSON, nil when there is none.
func (m Message) Raw(key string) []byte {
	var raw []byte
	pyjson.Members(m.Data, func(k string, value []byte) {
		if k == key {
			raw = value
		}
	})
	return raw
}

// String returns a member of data that is a string, else "".
func (m Message) String(key string) string { return pyjson.Unquote(m.Raw(key)) }

// Strings returns the strings of a member of data that is a list.
func (m Message) Strings(key string) []string { return stringList(m.Raw(key)) }

// Float returns a member of data that is a number, else 0.
func (m Message) Float(key string) float64 {
	raw := m.Raw(key)
	if len(raw) == 0 || raw[0] != '-' && raw[0] < '0' || raw[0] > '9' {
		return 0
	}
	return pyjson.Number(raw).Float64()
}

// QueueRemaining returns the count of a status message.
func (m Message) QueueRemaining() (n int, ok bool) {
	if m.Type != TypeStatus {
		return 0, false
	}
	return execInfo(m.Raw("status"))
}

// NewMessage writes a message in Python's style.
func NewMessage(kind string, data pyjson.Value) []byte {
	return pyjson.Marshal(pyjson.NewObject(
		pyjson.Member{Key: "type", Value: pyjson.String(kind)},
		pyjson.Member{Key: "data", Value: data},
	))
}

func newMessage(kind string, data ...pyjson.Member) []byte {
	return NewMessage(kind, pyjson.NewObject(data...))
}

func field(key string, value pyjson.Value) pyjson.Member {
	return pyjson.Member{Key: key, Value: value}
}

func idField(id string) pyjson.Member { return field("prompt_id", pyjson.String(id)) }

func timestamp(at time.Time) pyjson.Member { return field("timestamp", pyjson.Int(at.UnixMilli())) }

// ExecutionStart writes the message that begins a run.
func ExecutionStart(id string, at time.Time) []byte {
	return newMessage(TypeExecutionStart, idField(id), timestamp(at))
}

// ExecutionCached writes the message that names the nodes whose results are there already.
func ExecutionCached(id string, nodes []string, at time.Time) []byte {
	return newMessage(TypeExecutionCached, field("nodes", pyjson.Strings(nodes)), idField(id), timestamp(at))
}

// ExecutionSuccess writes the message of a run that went well.
func ExecutionSuccess(id string, at time.Time) []byte {
	return newMessage(TypeExecutionSuccess, idField(id), timestamp(at))
}

// ExecutionInterrupted writes the message of a run that was stopped while node
// ran; executed are the nodes that had finished.
func ExecutionInterrupted(id, node, nodeType string, executed []string, at time.Time) []byte {
	return newMessage(TypeExecutionInterrupted, idField(id), field("node_id", pyjson.String(node)),
		field("node_type", pyjson.String(nodeType)), field("executed", pyjson.Strings(executed)), timestamp(at))
}

// Failure is what an execution_error tells.
type Failure struct {
	// NodeID and NodeType are of the node that failed, a real one where
	// there is one: older frontends show nothing without it.
	NodeID, NodeType string
	// Executed are the nodes that had finished.
	Executed []string
	// Message and Type are of the exception; Type is a Python class name.
	Message, Type string
	Traceback     []string
}

// ExecutionError writes the message of a run that failed, with every field
// that clients require.
func ExecutionError(id string, f Failure, at time.Time) []byte {
	return newMessage(TypeExecutionError, idField(id), field("node_id", pyjson.String(f.NodeID)),
		field("node_type", pyjson.String(f.NodeType)), field("executed", pyjson.Strings(f.Executed)),
		field("exception_message", pyjson.String(f.Message)), field("exception_type", pyjson.String(f.Type)),
		field("traceback", pyjson.Strings(f.Traceback)), field("current_inputs", pyjson.NewObject()),
		field("current_outputs", pyjson.Array{}), timestamp(at))
}

func quoted(s string) []byte { return pyjson.AppendString(nil, s) }
