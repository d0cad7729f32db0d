package pyjson

// Edit replaces one part of a text.
type Edit struct {
	Span
	With []byte
}

// Splice applies edits, which are in order and do not overlap. Without any it
// returns data itself, else a copy.
func Splice(data []byte, edits []Edit) []byte {
	if len(edits) == 0 {
		return data
	}
	size := len(data)
	for _, e := range edits {
		size += len(e.With) - (e.To - e.From)
	}
	out := make([]byte, 0, size)
	at := 0
	for _, e := range edits {
		out = appendText(out, data[at:e.From])
		out = append(out, e.With...)
		at = e.To
	}
	return appendText(out, data[at:])
}
