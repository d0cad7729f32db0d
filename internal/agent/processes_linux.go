package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// processes are those of this machine, as far as this process may see them.
type processes struct{ proc string }

func theProcesses() processes { return processes{"/proc"} }

// command returns the command line of a process, without a final NUL; "" if it cannot be
// seen.
func (p processes) command(pid int) string {
	text, err := os.ReadFile(filepath.Join(p.proc, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(text), "\x00")
}

// parent returns the process that started another, 0 if that is not known.
func (p processes) parent(pid int) int {
	text, err := os.ReadFile(filepath.Join(p.proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("PPid:")); ok {
			parent, err := strconv.Atoi(string(bytes.TrimSpace(value)))
			if err != nil {
				return 0
			}
			return parent
		}
	}
	return 0
}

// maxFound bounds the ports that command lines name.
const maxFound = 64

// ports are those that command lines of ComfyUI servers name, in order.
func (p processes) ports() []int {
	folders, err := os.ReadDir(p.proc)
	if err != nil {
		return nil
	}
	var ports []int
	for _, folder := range folders {
		if pid, err := strconv.Atoi(folder.Name()); err == nil {
			if port := portOf(p.command(pid)); port != 0 {
				ports = append(ports, port)
			}
		}
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	return ports[:min(len(ports), maxFound)]
}
