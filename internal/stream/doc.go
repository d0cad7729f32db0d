// Package stream gives each client one serial stream of events, however many of its
// prompts run at once.
//
// Programs written for a single ComfyUI expect prompts to run one after the other:
// a message's only context is "the prompt that is running". So a client's socket
// sees one prompt at a time, as a complete sequence from execution_start to
// `executing` with a null node, while the other sequences are held. When a sequence
// ends, prompts that have ended come next, in the order in which they ended, then
// the running prompt that started first. `status` is never held.
//
// A sequence that was sent is kept until the client confirms it, either with a pong
// or, for clients that never send one, in one of the ways described in receipt.go.
// A client that reconnects within the replay window is sent everything it has not
// confirmed, from the start of each sequence.
//
// Hubs that share a queue also share their clients' streams. The hub that has a
// client's newest socket owns the client and holds its line. Every other hub keeps
// the logs of its own runs, as it would for a disconnected client. A forwarder
// takes the place of the socket there and sends the logs to the owner as they grow.
// Messages between hubs are numbered: if one is missing, everything is sent again,
// and the receiver skips what it already has. A log is therefore dropped only after
// the client itself has confirmed it, and a socket that moves to another hub finds
// everything there that it has yet to see. A [Transport] connects the hubs.
//
// [Streams] is the entry point, with [Sockets], which accepts them, and [Statuses].
// Behind it, registry has the clients; line orders the events of one client as a plain
// state machine without goroutines or a clock; log holds one sequence; socket is one
// WebSocket with a bounded queue and its own writer, so that a slow client delays nobody
// else. Between hubs, ownership decides which one shows a client anything, fences which
// run of a job counts; forwarder is the sending end, remotes and inbox are the receiving
// one, and watch repairs what lost notices have left undone. The package knows nothing
// of Redis or of instances.
package stream
