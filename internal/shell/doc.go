// Package shell is the hub's client for people: the sub-commands of `comfyhub`,
// which submit workflows, show and cancel jobs, follow them, store what they make, and show
// and drain the fleet.
//
// It is a client like any other. It knows nothing of the hub but the plain job API, the
// routes below /hub and, for the operator, those of Caddy's admin endpoint, and it trusts the hub no more than its user does: what a hub answers chooses no file
// outside the folder that the user has named, gets no login meant for another host, and
// writes no control characters to a terminal.
package shell
