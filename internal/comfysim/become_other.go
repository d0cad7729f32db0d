//go:build !unix

package comfysim

import (
	"context"
	"io"
)

// Become runs the simulator in this process's stead, until the context ends.
func Become(ctx context.Context, arguments []string, out, log io.Writer) error {
	p, err := start(arguments, out, log)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-p.ended:
	}
	return p.Stop()
}
