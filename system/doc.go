// Package system is a whole installation in simulated time: hubs that share a Redis,
// simulated ComfyUI servers, clients, and the network between them, in one process and one
// testing/synctest bubble. An hour of it takes about a second. Faults come from a schedule
// that a seed makes; what must always hold is checked while it runs. docs/testing.md tells
// how to write a scenario and how to read a breach.
package system
