// Package stream gives each client one serial stream of events, however many
// of its prompts run at once.
//
// A program written for one ComfyUI expects that prompts run one after the
// other: messages carry no more context than "the prompt that is running".
// So a client's socket sees one prompt at a time, each a complete sequence
// from execution_start to `executing` with a null node, while the others are
// held. When a sequence ends, prompts that have ended come first, in order of
// their end, then the running one that started first. `status` is never held.
//
// A sequence that was sent is kept until the client has confirmed it: with a
// pong, or in one of the ways of clients that never send one, see receipt.go. A
// client that comes back within the replay window gets everything that it has
// not confirmed, whole.
//
// Hubs that share a queue share their clients' streams, too. The hub that has
// a client's newest socket is the client's home and holds its line; every
// other hub keeps the logs of its own runs as for a client that is away, and a
// courier, which is to its line what a socket would be, sends them to the home
// as they grow. Letters are numbered: where one is missing everything is sent
// anew, and what has arrived is skipped. So a log is dropped only when the
// client itself has confirmed it, and a socket that moves to another hub finds
// there all that is still to be shown. What connects hubs is a [Carrier].
//
// [Streams] is the registry and the only door. Behind it, line is the order
// of one client as a plain state machine without goroutines or clock, log is
// what is kept of one sequence, and socket is one WebSocket with a bounded
// queue and a writer of its own, so that a client that does not read delays
// nobody. Between hubs, courier is the sending end and source the receiving
// one. The package knows neither Redis nor instances.
package stream
