// Package leaktest fails the tests of a package that leave goroutines behind.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end. goleak by itself waits half
// a second, which on a busy machine is nothing.
const patience = 30 * time.Second

// Main runs the tests of a package, for its TestMain.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := settled(options...); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// settled waits until all goroutines have ended.
func settled(options ...goleak.Option) (err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = goleak.Find(options...); err == nil {
			return nil
		}
	}
	return err
}
