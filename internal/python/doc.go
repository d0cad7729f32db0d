// Package python computes what Python's built-in functions make of JSON values:
// bool, int, float, str, repr, == and <. ComfyUI applies them to what clients
// send, and shows clients the results and the texts of the exceptions.
//
// The functions have the names that they have in Python. The tests compare them
// with a real python3.
package python

import "fmt"

// Exception is an exception that Python raises.
type Exception struct {
	// Type is the name of its class, such as "ValueError".
	Type string
	// Text is what str() gives for it.
	Text string
}

// Error is the last line of its traceback.
func (e *Exception) Error() string { return e.Type + ": " + e.Text }

// TypeError returns a TypeError.
func TypeError(format string, args ...any) *Exception {
	return &Exception{"TypeError", fmt.Sprintf(format, args...)}
}
