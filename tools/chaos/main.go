// Command chaos checks that a fleet keeps its promises while everything around it
// breaks. It runs hubs, agents, simulated ComfyUI instances and a redis-server as
// processes, with a proxy on each connection, and breaks them on a schedule that
// a seed decides: kills, hangs, restarts, cut, slow and one-way connections, members
// that the gossip does not reach, a full Redis, a full disk, a storage that vanishes.
// Meanwhile clients submit, reconnect to any hub,
// cancel, and check every pixel. At the end it counts what was lost, doubled,
// wrong or never delivered.
//
// Run it with `make chaos` from the root of the repository. It exits with 1 if a
// promise was broken. The logs are kept until the next run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

type options struct {
	seed     uint64
	duration time.Duration
	every    time.Duration
	faults   string
	dir      string
	redis    string
	sizes    sizes
}

func main() {
	var o options
	var seconds int
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().Unix()), "which faults, and when") // #nosec G115 -- a time after 1970
	flag.IntVar(&seconds, "seconds", 60, "how long faults happen")
	flag.DurationVar(&o.every, "every", 3*time.Second, "time from one fault to the next, on average")
	flag.StringVar(&o.faults, "faults", "", "only kinds of faults whose names contain one of these words, with commas between; list shows all kinds, none means no faults")
	flag.StringVar(&o.dir, "dir", filepath.Join("data", "chaos"), "folder for logs and data; it is emptied")
	flag.StringVar(&o.redis, "redis", single, "form of Redis: single, sentinel or cluster")
	flag.IntVar(&o.sizes.hubs, "hubs", 3, "number of hubs")
	flag.IntVar(&o.sizes.agents, "agents", 3, "number of agents")
	flag.IntVar(&o.sizes.pull, "pull", 1, "how many of the agents only dial out: they open tunnels to the hubs")
	flag.IntVar(&o.sizes.instances, "instances", 6, "number of simulated instances")
	flag.IntVar(&o.sizes.clients, "clients", 12, "number of clients with a socket")
	flag.Parse()
	o.duration = time.Duration(seconds) * time.Second
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	kept, err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	if !kept {
		os.Exit(1)
	}
}

// run reports whether every promise was kept.
func run(ctx context.Context, o options, out io.Writer) (kept bool, err error) {
	if o.faults == "list" {
		for _, k := range kinds() {
			fmt.Fprintln(out, k.name)
		}
		return true, nil
	}
	some, err := named(strings.FieldsFunc(o.faults, func(r rune) bool { return r == ',' || r == ' ' }))
	if err != nil {
		return false, err
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return false, err
	}
	_ = unmount(filepath.Join(o.dir, diskFolder)) // of a run that was killed
	if err := os.RemoveAll(o.dir); err != nil {
		return false, err
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return false, err
	}
	set, err := programs.Made().Absolute()
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "seed %d, %v, Redis %s, %d hubs, %d agents (%d dial out), %d instances, %d clients; logs in %s\n",
		o.seed, o.duration, o.redis, o.sizes.hubs, o.sizes.agents, o.sizes.pull, o.sizes.instances, o.sizes.clients, o.dir)
	s, err := newStage(ctx, set, o.dir, o.redis, o.sizes)
	defer s.stop()
	if err != nil {
		return false, err
	}
	if s.disk.folder != nil {
		fmt.Fprintln(out, "no disk gets full, because only root can mount one:", s.disk.folder)
	}
	r := newReport(o, s)
	r.run(ctx, some, out)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return r.print(out), nil
}

// run has clients submit while faults happen, waits until everything has ended, and
// checks it all.
func (r *report) run(ctx context.Context, some []kind, out io.Writer) {
	s, t := r.stage, r.tally
	well := newAvailability(len(s.hubs))
	submit, enough := context.WithCancel(ctx)
	listen, quiet := context.WithCancel(ctx)
	defer enough()
	defer quiet()
	var clients sync.WaitGroup
	start := func(n int, c *client) {
		c.name, c.random, c.tally, c.http, c.well = fmt.Sprint("chaos client ", n+1), rand.New(rand.NewPCG(r.options.seed, uint64(n+1))), t, &http.Client{}, well
		clients.Go(func() { c.run(listen, submit) })
	}
	for n := range r.options.sizes.clients {
		start(n, &client{hubs: s.urls()})
	}
	// One more client at each hub only submits. It notices when nothing is accepted.
	for n, url := range s.urls() {
		start(r.options.sizes.clients+n, &client{hubs: []string{url}, nameless: true})
	}
	before := s.measure(ctx)
	r.samples.add("start", before)
	watched, unwatch := context.WithCancel(ctx)
	minute := time.NewTicker(time.Minute)
	var watch sync.WaitGroup
	watch.Go(func() { r.samples.watch(watched, minute.C, s.measure) })
	d := &director{stage: s, tally: t, log: out, well: well, busy: map[string]bool{}, struck: map[string]int{}}
	faults := time.After(r.options.duration)
	d.run(ctx, schedule(r.options.seed, some, s, r.options.duration, r.options.every))
	select { // the last fault may have healed earlier, or there are none
	case <-ctx.Done():
	case <-faults:
	}
	minute.Stop()
	unwatch()
	watch.Wait()
	enough()
	r.struck = d.struck
	r.silence, r.silentFrom = well.longest(t.answered, time.Now())
	fmt.Fprintln(out, time.Now().Format("15:04:05.000"), "all faults have healed")
	end := time.AfterFunc(settle, quiet)
	clients.Wait()
	end.Stop()
	j := newJudge(s, t)
	j.empty(ctx)
	fmt.Fprintln(out, time.Now().Format("15:04:05.000"), "the queue is empty")
	j.all(ctx)
	j.leaks(ctx)
	j.logs()
	r.attempts, r.executed, r.full, r.waited = j.attempts, j.executed, j.full, j.waited
	after := s.measure(ctx)
	r.samples.add("end", after)
	for _, name := range s.measured() {
		if what := grown(before[name], after[name]); what != "" {
			t.breach(leaked, "%s holds %s", name, what)
		}
	}
}
