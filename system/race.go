//go:build race

package system

// raceDetector says whether this is built with the race detector.
const raceDetector = true
