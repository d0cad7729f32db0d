package agent

import (
	"errors"
	"fmt"
	"strings"
)

// device names the GPU that a server uses for the hubs, "" if it is not known. A GPU that is
// split into several has no memory that they share.
func (i *instance) device() string {
	if i.target.gpu != "" || i.at.split {
		return i.target.gpu
	}
	return i.at.id
}

var errGPU = errors.New("want the name of a GPU, of at most 100 letters, digits, dots, colons, dashes, and underscores")

// checkGPU returns an error for a name that a GPU cannot have.
func checkGPU(name string) error {
	other := strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:-", r)
	})
	if name == "" || len(name) > 100 || other {
		return fmt.Errorf("--gpu %q: %w", name[:min(len(name), 100)], errGPU)
	}
	return nil
}

// onGPUs says which GPU each server uses, as the flag does.
func onGPUs(list []target, gpus []string) error {
	if len(gpus) > 0 && len(gpus) != len(list) {
		return fmt.Errorf("--gpu: want one for each --comfyui, in the same order: %d for %d", len(gpus), len(list))
	}
	for n, name := range gpus {
		if err := checkGPU(name); err != nil {
			return err
		}
		list[n].gpu = name
	}
	return nil
}
