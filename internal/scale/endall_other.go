//go:build !unix

package scale

import "os/exec"

// endAll does nothing: what the program has started may go on.
func endAll(*exec.Cmd) {}
