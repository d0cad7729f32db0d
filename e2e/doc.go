// Package e2e tests the programs as they are shipped: a real caddy, real
// agents with simulated instances, a real Redis, killed and stopped as machines
// do it to programs.
package e2e
