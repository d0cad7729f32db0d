package internal_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// bareGoroutine starts a goroutine in which a panic ends the process.
var bareGoroutine = regexp.MustCompile(`\bgo func\(|\.Go\(func\(`)

// A panic in a goroutine that works for one job, client or instance ends no more
// than that: packages with such goroutines start them by package panics. Those
// counted here are loops of the hub itself, or contain their panics.
func TestPanicsAreContained(t *testing.T) {
	t.Parallel()
	bare := map[string]int{
		"internal/dispatch/dispatcher.go": 7, "internal/instance/link.go": 1,
		"internal/files/collector.go": 1, "internal/files/opened.go": 1, "internal/files/transfer.go": 2,
	}
	for _, s := range sources(t) {
		if s.isTest() || s.folder() != "internal/dispatch" && s.folder() != "internal/instance" && s.folder() != "internal/files" {
			continue
		}
		require.Len(t, bareGoroutine.FindAll(s.text, -1), bare[s.path], "%s: use package panics", s.path)
	}
}
