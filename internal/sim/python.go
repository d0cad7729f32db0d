package sim

import (
	"fmt"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// exception is a Python exception: what a node or the validation raises.
type exception struct {
	kind    string // "ValueError", "torch.OutOfMemoryError"
	message string
	tips    string // appended to the message shown to clients
}

func (e *exception) Error() string { return e.kind + ": " + e.message }

func raise(kind, format string, args ...any) *exception {
	return &exception{kind: kind, message: fmt.Sprintf(format, args...)}
}

// toInt is Python's int(v) as Python prints it.
func toInt(v pyjson.Value) (pyjson.Number, *exception) { return converted(python.Int(v)) }

// toFloat is Python's float(v) as Python prints it.
func toFloat(v pyjson.Value) (pyjson.Number, *exception) { return converted(python.Float(v)) }

// converted returns the result of a conversion. The simulator refuses digits beyond
// ASCII.
func converted(n pyjson.Number, ok bool, fault *python.Exception) (pyjson.Number, *exception) {
	switch {
	case fault != nil:
		return "", raise(fault.Type, "%s", fault.Text)
	case !ok:
		return "", raise("ValueError", "the simulator reads ASCII digits only")
	}
	return n.Python(), nil
}
