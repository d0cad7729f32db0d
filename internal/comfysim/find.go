package comfysim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
)

// processName is the simulator's first argument, under which ps shows it and its errors begin
// with "agent:", as they do for whoever has started an agent.
const processName = "agent simulate"

// find returns the path of the simulator: beside this program, or on the PATH.
func find() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	name := "comfysim"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	beside := filepath.Join(filepath.Dir(self), name)
	if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
		return beside, nil
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("simulated servers need the program %s, which is missing: put it into %s, or into a folder of the PATH (make build and the agent's archive have it)", name, filepath.Dir(self))
}

// ExitError is the end of a simulator that has told itself what is wrong.
type ExitError struct{ Code int }

// Error implements error.
func (e ExitError) Error() string {
	return "the simulator has ended: exit status " + strconv.Itoa(e.Code)
}
