package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	// sampleEvery is the pause between two samples of the GPUs.
	sampleEvery = 5 * time.Second
	// busyPercent is the utilization from which a GPU counts as used.
	busyPercent = 50
	// busySamples and freeSamples in a row decide: a desktop that redraws for a
	// moment is no reason to stop using an instance.
	busySamples, freeSamples = 3, 2
	// settle is how long a server must have been idle before the load of its GPU is
	// attributed to somebody else.
	settle = 10 * time.Second
)

// gpuUse returns how busy each GPU is, in percent by index.
type gpuUse func(context.Context) (map[string]int, error)

// nvidia uses the driver's own tool; nil if it is not installed.
func nvidia() gpuUse {
	tool, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil
	}
	return func(ctx context.Context) (map[string]int, error) {
		ctx, cancel := context.WithTimeout(ctx, sampleEvery)
		defer cancel()
		out, err := exec.CommandContext(ctx, tool, "--query-gpu=index,utilization.gpu", "--format=csv,noheader,nounits").Output()
		if err != nil {
			return nil, fmt.Errorf("nvidia-smi: %w", err)
		}
		return parseUse(string(out))
	}
}

// parseUse parses lines such as "0, 97". A GPU that does not report its
// utilization, "[N/A]", is skipped.
func parseUse(out string) (map[string]int, error) {
	r := csv.NewReader(strings.NewReader(out))
	r.TrimLeadingSpace = true
	r.FieldsPerRecord = 2
	lines, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	use := make(map[string]int, len(lines))
	for _, line := range lines {
		if percent, err := strconv.Atoi(strings.TrimSpace(line[1])); err == nil {
			use[strings.TrimSpace(line[0])] = percent
		}
	}
	return use, nil
}

// gpuLoad decides from samples which GPUs other programs use.
type gpuLoad struct{ gpus map[string]*gpuSamples }

type gpuSamples struct {
	high, low int // samples in a row
	taken     bool
}

// sample handles one sample; quiet reports whether our own servers leave a GPU
// idle. It returns the GPUs that are used by others.
func (l *gpuLoad) sample(use map[string]int, quiet func(gpu string) bool) map[string]bool {
	if l.gpus == nil {
		l.gpus = map[string]*gpuSamples{}
	}
	taken := map[string]bool{}
	for gpu, percent := range use {
		s := l.gpus[gpu]
		if s == nil || !quiet(gpu) {
			s = &gpuSamples{}
			l.gpus[gpu] = s
		}
		switch {
		case !quiet(gpu): // it is our own work
		case percent >= busyPercent:
			s.high, s.low = s.high+1, 0
			s.taken = s.taken || s.high >= busySamples
		default:
			s.high, s.low = 0, s.low+1
			s.taken = s.taken && s.low < freeSamples
		}
		taken[gpu] = s.taken
	}
	return taken
}

// watchLoad samples the GPUs until ctx ends.
func (a *agent) watchLoad(ctx context.Context, use gpuUse) {
	var load gpuLoad
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		percent, err := use(ctx)
		if err != nil {
			a.log.Debug("cannot read the use of the GPUs", "error", err)
			continue
		}
		if a.setLoad(percent, &load) {
			a.hear.Push(true)
		}
	}
}

// setLoad records a sample and reports whether it changes anything.
func (a *agent) setLoad(percent map[string]int, load *gpuLoad) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := load.sample(percent, func(gpu string) bool {
		for _, i := range a.instances {
			if i.gpu(percent) == gpu && !(i.seen.Idle() && time.Since(i.seen.Since) >= settle) {
				return false
			}
		}
		return true
	})
	for _, i := range a.instances {
		text := ""
		if taken[i.gpu(percent)] {
			text = "its GPU is used by another program"
		}
		if i.load != text {
			i.load, changed = text, true
		}
	}
	return changed
}

// gpu returns the index of the server's GPU as far as it is known: from its
// --cuda-device, or because there is only one.
func (i *instance) gpu(all map[string]int) string {
	if i.seen.CUDADevice != "" {
		return i.seen.CUDADevice
	}
	if len(all) == 1 {
		for gpu := range all {
			return gpu
		}
	}
	return ""
}
