package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// scaling prints how a look at the queue and a claim grow with it; see BenchmarkScale in
// internal/queue.
func scaling(r *rig) ([]figure.Figure, error) {
	times, err := goBench(r.ctx, "./internal/queue", "Scale", "500x", "times-small")
	return []figure.Figure{{
		Name: "scale", Value: times, Unit: "ratio", Goal: 2, Lower: true,
		Beside: "a look and a claim with 100,000 waiting jobs of 1,000 tenants in 20 classes / with 1,000 of 10 in 10",
	}}, err
}

// cycles compares the jobs a second that the scripts enqueue, claim and finish with the tasks
// a second that asynq enqueues and processes on the same Redis.
func cycles(r *rig) ([]figure.Figure, error) {
	const count = 10_000
	server, address, err := programs.StartRedis(r.dir, "cycles-redis", nil, "save \"\"", "appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction")
	if err != nil {
		return nil, err
	}
	r.started = append(r.started, server)
	// #nosec G204 -- the arguments are constants and an address of this program
	other := exec.CommandContext(r.ctx, "go", "run", ".", "-redis", address, "-tasks", strconv.Itoa(count))
	other.Dir = filepath.Join("tools", "bench", "asynq")
	out, err := other.Output()
	if err != nil {
		return nil, fmt.Errorf("asynq: %w", err)
	}
	theirs, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		return nil, err
	}
	ours, err := goBench(r.ctx, "./internal/queue", "Cycles", strconv.Itoa(count)+"x", "cycles/s", "COMFYHUB_BENCH_REDIS=redis://"+address)
	return []figure.Figure{{
		Name: "queue", Value: ours / theirs, Unit: "ratio", Goal: 1,
		Beside: fmt.Sprintf("%.0f jobs/s enqueued, claimed and finished, %.0f tasks/s with asynq; 10 kB each", ours, theirs),
	}}, err
}

// goBench runs a Go benchmark with further variables of the environment and returns a metric
// of its last line.
func goBench(ctx context.Context, pkg, name, times, metric string, env ...string) (float64, error) {
	// #nosec G204 -- the arguments are constants
	test := exec.CommandContext(ctx, "go", "test", pkg, "-run", "^$", "-bench", "^Benchmark"+name+"$", "-benchtime", times)
	test.Env = append(os.Environ(), env...)
	out, err := test.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("benchmark %s: %w\n%s", name, err, out)
	}
	value, err := lastMetric(out, metric)
	if err != nil {
		return 0, fmt.Errorf("benchmark %s: %w\n%s", name, err, out)
	}
	return value, nil
}

// lastMetric returns the value before the last occurrence of a metric's name.
func lastMetric(out []byte, metric string) (value float64, err error) {
	found := false
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		for n := 1; n < len(fields); n++ {
			if fields[n] == metric {
				if value, err = strconv.ParseFloat(fields[n-1], 64); err != nil {
					return 0, err
				}
				found = true
			}
		}
	}
	if !found {
		return 0, fmt.Errorf("it prints no %s", metric)
	}
	return value, nil
}

// waits measures a figure of package system/waits.
func waits(name string) func(*rig) ([]figure.Figure, error) {
	return func(r *rig) ([]figure.Figure, error) {
		// #nosec G204 -- the names are constants
		test := exec.CommandContext(r.ctx, "go", "test", "./system/waits", "-run", "^TestFigures$/^"+name+"$", "-count", "1", "-timeout", "1h", "-v")
		test.Env = append(os.Environ(), "COMFYHUB_WAITS="+map[bool]string{true: "quick", false: "whole"}[r.quick], "COMFYHUB_WAITS_SEED="+strconv.FormatUint(r.seed, 10))
		out, err := test.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, out)
		}
		f, err := figure.Find(string(out))
		return []figure.Figure{f}, err
	}
}
