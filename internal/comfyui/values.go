package comfyui

import "github.com/comfyhub/comfyhub/internal/pyjson"

// maxValues bounds the JSON values of a message, of the record of a prompt and of the answer to one:
// parsed, each takes far more memory than its text. A prompt may have half as many.
const maxValues = 2_000_000

// tooComplex reports whether a JSON text has more values than that.
func tooComplex(text []byte) bool {
	if len(text) <= maxValues { // as nearly all are
		return false
	}
	var m pyjson.Meter
	_, _ = m.Write(text) // it never fails
	return m.Values() > maxValues
}
