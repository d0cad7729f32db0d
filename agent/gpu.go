package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// onlyGPU returns the driver's id of this machine's GPU if there is exactly one, so that it
// is certain which one the servers here use; else "".
func onlyGPU(ctx context.Context) string {
	tool, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, sampleEvery)
	defer cancel()
	out, err := exec.CommandContext(ctx, tool, "--query-gpu=uuid,mig.mode.current", "--format=csv,noheader").Output()
	if err != nil {
		return ""
	}
	return parseOnlyGPU(string(out))
}

// lookForGPU notes the machine's GPU if there is exactly one, and tells the hubs.
func (a *agent) lookForGPU(ctx context.Context) {
	only := onlyGPU(ctx)
	if only == "" {
		return
	}
	a.mu.Lock()
	a.onlyGPU = only
	a.mu.Unlock()
	a.hear.Push(false)
}

// parseOnlyGPU parses a line such as "GPU-8f1c…, [N/A]". A GPU that is split into several
// has no memory that they share.
func parseOnlyGPU(out string) string {
	r := csv.NewReader(strings.NewReader(out))
	r.TrimLeadingSpace = true
	r.FieldsPerRecord = 2
	lines, err := r.ReadAll()
	if err != nil || len(lines) != 1 {
		return ""
	}
	id, split := strings.TrimSpace(lines[0][0]), strings.TrimSpace(lines[0][1])
	if !strings.HasPrefix(id, "GPU-") || split == "Enabled" || checkGPU(id) != nil {
		return ""
	}
	return id
}

// device names the GPU that a server uses, "" if it is not known. only is the GPU of a
// machine that has one.
func (i *instance) device(only string) string {
	if i.target.gpu != "" || only == "" || !onThisMachine(i.url) || i.seen.GPUType != "cuda" {
		return i.target.gpu
	}
	return only
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
