//go:build !race

package picture

// raceDetector says that tests run under the race detector, which allocates more.
const raceDetector = false
