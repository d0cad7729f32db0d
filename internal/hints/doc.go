// Package hints says where the time of a job goes, and what would make jobs like it shorter. It
// knows the graph and what was measured, and nothing else: no queue, no network, no clock.
package hints
