package comfyui

import "github.com/comfyhub/comfyhub/internal/pyjson"

// Parsed, each JSON value takes far more memory than its text.
const (
	// maxValues bounds those of a message, of the record of a prompt and of the answer to one. A
	// prompt may have half as many.
	maxValues = 2_000_000
	// maxInfoValues bounds those of object_info, which is kept. That of a large installation has less
	// than half as many.
	maxInfoValues = 5_000_000
)

// tooComplex reports whether a JSON text has more values than it may.
func tooComplex(text []byte, most int) bool {
	if len(text) <= most { // as nearly all are
		return false
	}
	var m pyjson.Meter
	_, _ = m.Write(text) // it never fails
	return m.Values() > most
}
