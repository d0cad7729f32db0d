package stream

// Kind says how a message may be treated while it waits or while the reader is
// slow. It does not determine the message's form on the wire.
type Kind uint8

// The kinds. Only Progress, ProgressState and Preview may be reduced to the newest
// of their kind; everything else reaches the client in order.
const (
	// Other is any message that is kept as it is: execution_start,
	// execution_cached, executed, the end messages, and everything that custom
	// nodes send.
	Other Kind = iota
	// Executing is `executing` with a node. A client that returns after the replay
	// window is sent the last one.
	Executing
	// Progress is `progress`.
	Progress
	// ProgressState is `progress_state`.
	ProgressState
	// Preview is a binary image of event type 1 or 4 from a node that is not an
	// output node.
	Preview
	// Result is a binary frame of an output node such as SaveImageWebsocket. There
	// is no other copy of it, so it is never dropped.
	Result
	// Note is a text from the hub for the user, in the form of a node's text (event
	// type 3). Only web UIs are sent it, see [socket.frame].
	Note
)

// String returns the name of the kind for logs and tests.
func (k Kind) String() string {
	switch k {
	case Executing:
		return "executing"
	case Progress:
		return "progress"
	case ProgressState:
		return "progress_state"
	case Preview:
		return "preview"
	case Result:
		return "result"
	case Note:
		return "note"
	default:
		return "other"
	}
}

// shrinks reports whether a newer message of the kind replaces an older one.
func (k Kind) shrinks() bool { return k == Progress || k == ProgressState || k == Preview }

// Message is one WebSocket message as the client sees it: its prompt_id is already
// the client's.
type Message struct {
	Kind Kind
	// Node is the id of the node that the message is about; it may be empty.
	// Previews of event type 1 do not name their node: if Node is empty, the node
	// that is executing is assumed.
	Node string
	// Binary tells a binary frame from a text frame.
	Binary bool
	// Data is the whole frame. It must not change after the call.
	Data []byte
}

// Text returns a JSON message of kind Other.
func Text(data []byte) Message { return Message{Data: data} }
