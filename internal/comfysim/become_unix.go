//go:build unix

package comfysim

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Become makes this process the simulator: it returns only if that fails. The process keeps
// its id, its output and its parent, and signals reach the simulator itself.
func Become(ctx context.Context, arguments []string, _, _ io.Writer) error {
	path, err := find()
	if err != nil {
		return err
	}
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	if ctx.Err() != nil {
		return nil
	}
	return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, append([]string{processName}, arguments...), os.Environ())}
}
