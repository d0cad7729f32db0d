package stream

import (
	"strconv"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// frame is one message of one prompt. It never changes, so a log and any number of
// socket queues can share it.
type frame struct {
	kind   Kind
	prompt string
	node   string
	binary bool
	// n is the frame's position in its sequence, from 1.
	n uint64
	// final marks the messages that close a sequence.
	final bool
	// vital marks what even a shortened log keeps: execution_start and the end
	// messages.
	vital bool
	// data is the message; nil if it is stored in a file.
	data []byte
	file *spillFile
	at   int64 // offset in file
	size int64 // of the message, wherever it is stored
}

// frameOverhead is the assumed cost of a message besides its bytes. Without it a
// million empty messages would count as nothing.
const frameOverhead = 128

// memory is what the frame costs while it is kept, in bytes.
func (f *frame) memory() int64 { return frameOverhead + int64(len(f.data)) }

// load returns the message, reading it from its file if necessary.
func (f *frame) load() ([]byte, error) {
	if f.file == nil {
		return f.data, nil
	}
	return f.file.read(f.at, f.size)
}

// executingNull returns the message that ends the sequence of a prompt.
func executingNull(prompt string) *frame {
	data := append([]byte(nil), `{"type": "executing", "data": {"node": null, "prompt_id": `...)
	data = pyjson.AppendString(data, prompt)
	data = append(data, "}}"...)
	return &frame{prompt: prompt, vital: true, data: data, size: int64(len(data))}
}

// statusMessage reports how many jobs a caller has. sid is set only in the first
// message of a socket.
func statusMessage(remaining int, sid string) []byte {
	data := append([]byte(nil), `{"type": "status", "data": {"status": {"exec_info": {"queue_remaining": `...)
	data = strconv.AppendInt(data, int64(remaining), 10)
	data = append(data, "}}"...)
	if sid != "" {
		data = append(data, `, "sid": `...)
		data = pyjson.AppendString(data, sid)
	}
	return append(data, "}}"...)
}
