// Package replay replays recorded traffic of unmodified ComfyUI servers against
// something that claims to be one, and reports every difference that a client could
// see: statuses, headers, bodies, the messages on each socket and how it closes.
//
// A [Player] drives the [Clock] of the simulated instances behind the server under
// test, so that a recording of ten seconds takes no longer than the work in it, and
// the order of events is that of the recording, not of the machine. What differs
// from run to run (ids, times, random letters, printed tensors, the order of
// Python's sets) is normalized on both sides.
package replay
