// Package metrics holds the hub's measurements: it takes them from the other packages and
// gives them to Prometheus.
//
// No label names a user, a prompt, or a job. What a GPU machine says of itself becomes a
// label only within bounds: at most [MaxGPUs] classes of GPU and [MaxInstances] instances
// are told apart, and the others are counted together.
package metrics
