// Package agent is the program beside one or more ComfyUI servers on a GPU machine that
// makes them instances of a hub's fleet. Command agent starts it.
//
// It listens to each server's own event socket and tells every hub at once when a
// server becomes idle or busy, or when somebody else uses it. It serves them all on
// one port, so that the servers themselves, which have no passwords, can stay on
// loopback. It holds no jobs and decides nothing: if it dies, runs continue, and
// when it returns the hubs resume them.
package agent
