//go:build !linux && !darwin

package metrics

import "errors"

// space is not known on this system.
func space(string) (free, size uint64, err error) { return 0, 0, errors.ErrUnsupported }
