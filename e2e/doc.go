// Package e2e tests the programs as they are shipped: a real caddy, real
// agents with simulated instances and a real Redis, killed and stopped as
// happens on real machines.
package e2e
