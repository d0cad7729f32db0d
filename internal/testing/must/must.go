// Package must is for calls in tests that must not fail.
package must

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Get returns the result of a call that must not fail: must.Get(call())(t). It ends the test if it does.
func Get[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}
