// Command bench compares ComfyHub with what it replaces. Each benchmark runs two
// things on one machine in one run and prints their ratio, because a time alone says
// more about the machine than about the program. All servers are processes of their
// own: hub, agent, redis-server, and simulated instances of ComfyUI. Waits need no
// machine: package system/waits measures them in simulated time.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// benchmark is a comparison that bears a name.
type benchmark struct {
	name string
	// about says what is compared with what.
	about string
	run   func(*rig) ([]figure.Figure, error)
	// exact ones come out the same however busy the machine is.
	exact bool
}

// benchmarks are all of them, in the order in which they run.
func benchmarks() []benchmark {
	return []benchmark{
		{"latency", "POST to execution_success, one prompt at a time: through the hub / direct", latency, false},
		{"gap", "prompts/s of one instance with 300 trivial prompts waiting: through the hub / posted to it; the same with lookahead 1", gap, false},
		{"cpu", "processor time of hub, agent and Redis for a trivial prompt; printed beside it: of the instance", processor, false},
		{"submit", "accepted POST /prompt per second over 50 connections: hub / reverse_proxy to one instance", submit, false},
		{"view", "bytes/s of 4 MB pictures over 16 connections: GET /view of the hub / Caddy's file_server", view, false},
		{"sockets", "resident memory of the hub for each of 5,000 idle sockets; p99 of a prompt while one client in ten does not read / while all do", sockets, false},
		{"fleet", "how long 500 instances stand without work between two runs while 2,000 clients want them; the hub's processor time", fleet, false},
		{"burst", "the same when 120 instances of 30 agents end at the same moment", simultaneous, false},
		{"crowded", "processor time of the hub while 10,000 prompts of 1,000 tenants wait and 1,000 sockets are open at 500 instances; for one more prompt / without them", crowded, false},
		{"queue", "jobs/s that the scripts enqueue, claim and finish / tasks/s of asynq on the same Redis, 10 kB each", cycles, false},
		{"scale", "a look and a claim with 100,000 waiting jobs of 1,000 tenants / with 1,000 of 10", scaling, false},
		{"hol8", "mean wait for 8 instances at 80 % load: a balancer with round robin / hub", waits("hol8"), true},
		{"hol30", "the same for 30 instances", waits("hol30"), true},
		{"pool4", "how much longer than they run pictures take on 4 instances at 70 % load: workers that poll / hub", waits("pool4"), true},
		{"fifo8", "mean wait for 8 instances at 80 % load: hub with order fifo / an ideal central FIFO", waits("fifo8"), true},
		{"affinity", "model switches per prompt for 30 instances at 70 % load, 6 models that take 5 s to load: hub / a central FIFO that knows no models", waits("affinity"), true},
		{"fair", "mean slowdown of a tenant's prompts beside another one's 1,000 on 8 instances / alone on 4", waits("fair"), true},
		{"interactive", "p95 wait of a person's prompts beside a batch that fills 8 instances, with preempt bulk / how long they run; printed beside it: without", waits("interactive"), true},
		{"eta", "median of the difference between the wait that X-ComfyHub-Eta promises and the real one / the real one, for waits above 5 s", waits("eta"), true},
	}
}

// firstLook are those that say most in three minutes.
const firstLook = "latency,gap,cpu,submit,hol8,queue"

func main() {
	names := flag.String("run", "", "names of benchmarks, separated by commas (default: all; list: print them)")
	dir := flag.String("dir", "data/bench", "folder of logs and data; emptied first")
	seed := flag.Uint64("seed", 1, "decides what is drawn by chance")
	length := flag.Duration("length", 2*time.Minute, "how long fleet measures")
	table := flag.Bool("table", false, "print rows for docs/performance.md beside the figures")
	quick := flag.Bool("quick", false, "a first look: some of the benchmarks, with fewer prompts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, options{*names, *dir, *seed, *length, os.Getenv("COMFYUI_URL"), *quick, readWork, *table}, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	names, dir string
	seed       uint64
	length     time.Duration
	comfyui    string
	quick      bool
	// machine reads what the machine has done.
	machine func() work
	// table asks for rows of the tables in the docs.
	table bool
}

func run(ctx context.Context, o options, out io.Writer) error {
	if o.quick && o.names == "" {
		o.names = firstLook
	}
	chosen, err := choose(o.names)
	if err != nil {
		return err
	}
	if o.names == "list" {
		for _, b := range benchmarks() {
			fmt.Fprintf(out, "%-8s %s\n", b.name, b.about)
		}
		return nil
	}
	set, err := programs.Made().Absolute()
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	var failed []string
	for _, b := range chosen {
		if err := o.repeat(ctx, b, set, filepath.Join(dir, b.name), out); err != nil {
			if ctx.Err() != nil {
				return err
			}
			failed = append(failed, b.name)
			fmt.Fprintf(out, "FAILED name=%s: %v\n", b.name, err)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("these have failed: %s; logs in %s", strings.Join(failed, ", "), dir)
	}
	return nil
}

// attempts is how often a benchmark is run until its figures mean something.
const attempts = 3

// repeat runs a benchmark until it has had the machine to itself, and prints its figures, or why they
// would mean nothing.
func (o options) repeat(ctx context.Context, b benchmark, set programs.Set, dir string, out io.Writer) error {
	var strangers float64
	for range attempts {
		r, err := newRig(ctx, set, dir, out)
		if err != nil {
			return err
		}
		r.seed, r.length, r.comfyui, r.quick = o.seed, o.length, o.comfyui, o.quick
		before := o.machine()
		figures, err := b.run(r)
		r.stop()
		if strangers = before.strangers(o.machine()); err == nil && !b.exact && strangers > mostStrangers {
			r.say("void: other programs used %.0f %% of the machine", 100*strangers)
			continue
		}
		for _, f := range figures {
			fmt.Fprintln(out, f)
			if o.table {
				fmt.Fprintln(out, f.Row(b.about))
			}
		}
		return err
	}
	fmt.Fprintf(out, "VOID name=%s: other programs used %.0f %% of the machine\n", b.name, 100*strangers)
	return nil
}

// choose finds benchmarks by their names.
func choose(names string) ([]benchmark, error) {
	all := benchmarks()
	if names == "" || names == "list" {
		return all, nil
	}
	var chosen []benchmark
	for name := range strings.SplitSeq(names, ",") {
		n := slices.IndexFunc(all, func(b benchmark) bool { return b.name == strings.TrimSpace(name) })
		if n < 0 {
			return nil, fmt.Errorf("there is no benchmark %q; -run list shows all", name)
		}
		chosen = append(chosen, all[n])
	}
	return chosen, nil
}
