package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
)

// machine is how the agent looks after its machine.
type machine struct {
	// restartCommand is run to restart a server; empty for none.
	restartCommand string
	// outputs are the output folders of the servers, in their order; none if nothing is
	// deleted. outputAge is how long the hub has had a file when it is deleted there.
	outputs   []string
	outputAge time.Duration
	// reserve is how much of a server's disks must be free, in bytes.
	reserve size
}

// flags defines the flags.
func (m *machine) flags(f *pflag.FlagSet) {
	m.reserve = defaultReserve
	f.StringVar(&m.restartCommand, "restart-command", "", "shell `command` that restarts an instance which a hub found unhealthy; COMFYHUB_INSTANCE and COMFYHUB_INSTANCE_URL say which")
	f.StringSliceVar(&m.outputs, "output-dir", nil, "output `folder` of a ComfyUI, one for each --comfyui: files there that the hub has copied are deleted (default: nothing is deleted)")
	f.DurationVar(&m.outputAge, "output-age", 24*time.Hour, "`time` for which the hub has had a file when it is deleted from --output-dir")
	f.Var(&m.reserve, "disk-reserve", "an instance gets no jobs while less than this `size` is free on the disk of its output or temporary folder, such as 500MB or 2GB; 0 for no limit")
}

// place says which folder is each server's. servers is how many of the list are of ComfyUI.
func (m *machine) place(list []target, servers int) error {
	switch {
	case len(m.outputs) == 0:
		return nil
	case len(m.outputs) != servers:
		return fmt.Errorf("--output-dir: want one for each --comfyui, in the same order: %d for %d", len(m.outputs), servers)
	case m.outputAge < leastOutputAge:
		return fmt.Errorf("--output-age %s: want at least %s", m.outputAge, leastOutputAge)
	}
	for n, folder := range m.outputs {
		folder, err := filepath.Abs(folder)
		if err != nil {
			return fmt.Errorf("--output-dir: %w", err)
		}
		if info, err := os.Stat(folder); err != nil {
			return fmt.Errorf("--output-dir: %w", err)
		} else if !info.IsDir() {
			return fmt.Errorf("--output-dir %s: not a folder", folder)
		}
		if filepath.Dir(folder) == folder {
			return fmt.Errorf("--output-dir %s: a whole disk is not an output folder", folder)
		}
		list[n].output = folder
	}
	return nil
}

// openTidier makes what deletes from the output folder of a server; nil if nothing does.
// state is the agent's own folder.
func (a *agent) openTidier(t target) (*tidier, error) {
	if t.output == "" {
		return nil, nil //nolint:nilnil // that there is none is no error
	}
	if a.state == "" {
		return nil, errors.New("--output-dir: want --state, a folder to note what the hub keeps")
	}
	if err := os.MkdirAll(a.state, 0o700); err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	list, err := openKept(filepath.Join(a.state, t.name+".kept"), t.output)
	if err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	return &tidier{folder: t.output, age: a.outputAge, list: list, log: a.log.With("instance", t.name)}, nil
}
