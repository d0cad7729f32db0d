// Package beside runs tests beside others: what it is called with is parallel.
package beside

import (
	"testing"
	"testing/synctest"
)

// Cases tests each case of a table as a subtest of its name, all at once.
func Cases[C any](t *testing.T, cases map[string]C, test func(t *testing.T, c C)) {
	t.Helper()
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, c) })
	}
}

// Bubble tests in a bubble of testing/synctest.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}
