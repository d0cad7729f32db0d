package stream

// Kind says how a message may be treated while it waits or while the reader
// is slow. What a message is on the wire does not follow from it.
type Kind uint8

// The kinds. Only Progress, ProgressState and Preview ever shrink to the
// newest of their kind; everything else reaches the client in order.
const (
	// Other is any message that is kept as it is: execution_start,
	// execution_cached, executed, the ends, and all that custom nodes send.
	Other Kind = iota
	// Executing is `executing` with a node. The last one is what a client is
	// told that comes back after the replay window.
	Executing
	// Progress is `progress`.
	Progress
	// ProgressState is `progress_state`.
	ProgressState
	// Preview is a binary image of event type 1 or 4 from a node that is no
	// output node.
	Preview
	// Result is a binary frame of an output node such as SaveImageWebsocket.
	// It exists nowhere else, so it is never dropped.
	Result
	// Note is a text of the hub's own for a person, in the form of a node's text
	// (event 3). Only web UIs get it, see [socket.frame].
	Note
)

// String names the kind for logs and tests.
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

// shrinks reports whether a newer message of the kind makes an older one
// worthless.
func (k Kind) shrinks() bool { return k == Progress || k == ProgressState || k == Preview }

// Message is one WebSocket message as the client may see it: its prompt_id is
// already the client's.
type Message struct {
	Kind Kind
	// Node is the id of the node that the message speaks of; it may be empty.
	// A preview of event type 1 carries no node itself: with an empty Node
	// the one that is executing is assumed.
	Node string
	// Binary tells a binary frame from a text frame.
	Binary bool
	// Data is the whole frame. It must not change after the call that took it.
	Data []byte
}

// Text is a JSON message of kind Other.
func Text(data []byte) Message { return Message{Data: data} }
