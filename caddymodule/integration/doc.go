// Package integration tests the hub inside a running Caddy: what a reload must
// keep, and what ends when. Caddy's state is global to a process, so these
// tests have a package of their own and run one after the other.
package integration
