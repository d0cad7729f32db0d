package caddymodule

import (
	"fmt"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

// GPU says which GPU an instance uses.
type GPU struct {
	// The URL of one of `instances`.
	Instance string `json:"instance"`

	// The name of its GPU, of at most 100 bytes. Instances with the same one share its
	// memory. A name such as `GPU-8f1c...` is the driver's own, by which agents know the
	// GPU, too.
	Name string `json:"name"`
}

// maxGPUName bounds the name of a GPU, in bytes.
const maxGPUName = 100

func (g GPU) check() error {
	if g.Name == "" || len(g.Name) > maxGPUName {
		return fmt.Errorf("%s: the name of a GPU has 1 to %d bytes", g.Instance, maxGPUName)
	}
	return checkInstance(g.Instance)
}

// GPUs are those of all instances.
type GPUs []GPU

func (gs GPUs) check() error {
	for _, g := range gs {
		if err := g.check(); err != nil {
			return err
		}
	}
	return nil
}

// named returns the names of the GPUs by those of the instances.
func (gs GPUs) named() map[string]string {
	list := make(map[string]string, len(gs))
	for _, g := range gs {
		name, _ := fleet.StaticName(g.Instance) // check has seen that it is a URL
		list[name] = g.Name
	}
	return list
}
