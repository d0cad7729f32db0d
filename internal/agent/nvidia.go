package agent

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
	// maxCards and maxApps bound what is read of them.
	maxCards, maxApps = 256, 4096

	mebibyte = 1 << 20
)

// card is one GPU of this machine. Memory is in bytes, use in percent; -1 means that the
// driver does not say.
type card struct {
	index, id, name string
	use             int
	total, used     int64
	// split means that it is several GPUs with memory of their own (MIG).
	split bool
}

// app is a process that computes on a GPU. used is in bytes, -1 if the driver does not say,
// as on Windows.
type app struct {
	gpu  string
	pid  int
	used int64
}

// gpuSample is one look at the GPUs.
type gpuSample struct {
	cards []card
	// apps are what computes there, if listed; some containers do not see it.
	apps   []app
	listed bool
	// lost is how many GPUs there are of which the driver says nothing.
	lost int
}

// card returns the GPU that meets a condition, if exactly one does.
func (s gpuSample) card(is func(card) bool) (card, bool) {
	var found card
	n := 0
	for _, c := range s.cards {
		if is(c) {
			found, n = c, n+1
		}
	}
	return found, n == 1
}

// sampler looks at the GPUs.
type sampler func(context.Context) (gpuSample, error)

// The columns of the questions. The name is last: it is the only free text.
const (
	cardColumns = "index,uuid,utilization.gpu,memory.total,memory.used,mig.mode.current,name"
	appColumns  = "gpu_uuid,pid,used_memory"
)

// nvidia uses the driver's own tool; nil if it is not installed. The driver's library
// would answer in less time, but cannot be loaded by a static program.
func nvidia() sampler {
	tool, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil
	}
	ask := func(ctx context.Context, question string) (string, error) {
		cmd := exec.CommandContext(ctx, tool, question, "--format=csv,noheader,nounits")
		cmd.WaitDelay = time.Second // what it may have started does not hold this up
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("nvidia-smi: %w", err)
		}
		return string(out), nil
	}
	return func(ctx context.Context) (gpuSample, error) {
		ctx, cancel := context.WithTimeout(ctx, sampleEvery)
		defer cancel()
		var s gpuSample
		out, err := ask(ctx, "--query-gpu="+cardColumns)
		if err != nil {
			return s, err
		}
		if s.cards, s.lost, err = parseCards(out); err != nil {
			return s, err
		}
		if out, err = ask(ctx, "--query-compute-apps="+appColumns); err == nil {
			s.apps, s.listed = parseApps(out)
		}
		return s, nil
	}
}

// parseCards parses lines such as
// "0, GPU-8f1c…, 97, 24564, 1305, [N/A], NVIDIA GeForce RTX 4090". lost is how many say nothing of
// use, as that of a GPU which fell off the bus: the others count all the same.
func parseCards(out string) (cards []card, lost int, err error) {
	lines, err := readColumns(out)
	if err != nil {
		return nil, 0, err
	}
	for _, line := range lines[:min(len(lines), maxCards)] {
		if len(line) < 7 {
			lost, err = lost+1, fmt.Errorf("nvidia-smi: %d columns", len(line))
			continue
		}
		c := card{
			index: line[0], id: line[1], use: int(number(line[2])), total: bytesOf(line[3]), used: bytesOf(line[4]),
			split: line[5] == "Enabled", name: strings.Join(line[6:], ", "),
		}
		if !strings.HasPrefix(c.id, "GPU-") || checkGPU(c.id) != nil {
			lost, err = lost+1, fmt.Errorf("nvidia-smi: %q is not a GPU ID", c.id[:min(len(c.id), 40)])
			continue
		}
		cards = append(cards, c)
	}
	if len(cards) > 0 {
		err = nil
	}
	return cards, lost, err
}

// parseApps parses lines such as "GPU-8f1c…, 4711, 1012", and reports whether it could.
func parseApps(out string) ([]app, bool) {
	lines, err := readColumns(out)
	if err != nil || len(lines) > maxApps {
		return nil, false
	}
	var apps []app
	for _, line := range lines {
		if len(line) != 3 {
			return nil, false
		}
		pid := number(line[1])
		if pid <= 0 {
			return nil, false
		}
		apps = append(apps, app{gpu: line[0], pid: int(pid), used: bytesOf(line[2])})
	}
	return apps, true
}

func readColumns(out string) ([][]string, error) {
	r := csv.NewReader(strings.NewReader(out))
	r.TrimLeadingSpace, r.FieldsPerRecord, r.LazyQuotes = true, -1, true
	lines, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	for _, line := range lines {
		for n := range line {
			line[n] = strings.TrimSpace(line[n])
		}
	}
	return lines, nil
}

// number reads what the driver says, -1 for "[N/A]", "[Not Supported]" and the like.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// bytesOf is number of so many MiB.
func bytesOf(text string) int64 {
	n := number(text)
	if n < 0 {
		return -1
	}
	return n * mebibyte
}
