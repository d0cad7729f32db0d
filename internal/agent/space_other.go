//go:build !linux && !darwin && !windows

package agent

import "errors"

// space is not known on other systems.
func space(string) (room, error) { return room{}, errors.ErrUnsupported }
