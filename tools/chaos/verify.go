package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// settle is how long clients wait for their ends once all faults have healed, and how
// long the fleet may take to end one more job.
const settle = 2 * time.Minute

// judge checks every prompt once all faults have healed and all clients have
// gone.
type judge struct {
	stage *stage
	tally *tally
	c     *client
	files map[string]string // prompt by the file that it shows
	// settle is how long the queue may stay as long as it is.
	settle time.Duration
	// attempts counts all runs of prompts that ended well, executed those prompts.
	attempts, executed int
	// full counts the log lines of full disks, waited the starts that waited for Redis
	// or the storage.
	full, waited int
}

func newJudge(s *stage, t *tally) *judge {
	c := &client{name: "chaos judge", hubs: s.urls(), random: rand.New(rand.NewPCG(0, 0)), tally: t, http: &http.Client{}}
	return &judge{stage: s, tally: t, c: c, files: map[string]string{}, settle: settle}
}

// retry calls what until it succeeds or the time is up.
func (j *judge) retry(ctx context.Context, what func() error) error {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	for {
		err := what()
		if err == nil || ctx.Err() != nil {
			return err
		}
		j.c.pause(ctx, 200*time.Millisecond)
	}
}

// empty waits until no job is left in the queue. Faults may have left a long queue: as
// long as it becomes shorter, nothing is stuck.
func (j *judge) empty(ctx context.Context) {
	least, since := math.MaxInt, time.Now()
	for ctx.Err() == nil {
		n, err := j.live(ctx)
		if n == 0 && err == nil {
			return
		}
		if err == nil && n < least {
			least, since = n, time.Now()
		} else if time.Since(since) > j.settle {
			j.tally.breach(stuck, "%d jobs: %v", n, err)
			return
		}
		j.c.pause(ctx, 200*time.Millisecond)
	}
}

// live counts the jobs that have not ended.
func (j *judge) live(ctx context.Context) (n int, err error) {
	code, answer, err := j.c.do(ctx, http.MethodGet, j.c.hub()+"/hub/jobs", nil)
	if err != nil || code != http.StatusOK {
		return 0, fmt.Errorf("GET /hub/jobs: %d %w", code, err)
	}
	var all []job
	if err := json.Unmarshal(answer, &all); err != nil {
		return 0, err
	}
	for _, one := range all {
		if one.live() {
			n++
		}
	}
	return n, nil
}

// all checks the history entry and the picture of every prompt.
func (j *judge) all(ctx context.Context) {
	for _, p := range j.tally.prompts {
		j.one(ctx, p)
	}
}

func (j *judge) one(ctx context.Context, p *prompt) {
	var e *entry
	var hub string
	// Each try asks any hub: one that is dead for good must not hold up the judge
	// for every prompt.
	if err := j.retry(ctx, func() (err error) { hub = j.c.hub(); e, err = j.c.history(ctx, hub, p.id); return err }); err != nil {
		j.tally.breach(lost, "%s: %v", p.id, err)
		return
	}
	switch {
	case e == nil && p.accepted && !p.cancelled && j.tally.mayBeDropped(p):
		j.tally.dropped++
		return
	case e == nil && p.accepted && !p.cancelled:
		j.tally.breach(lost, "%s (client %q) was accepted and is not in the history", p.id, p.client)
		return
	case e == nil:
		return
	case e.Status.Text != "success":
		if !p.cancelled {
			j.tally.breach(failed, "%s: %s %s", p.id, e.Status.Text, e.Status.Messages)
		}
		return
	}
	j.count(ctx, hub, p)
	if p.bySocket {
		return
	}
	images := e.Outputs[saveNode].Images
	if len(images) != 1 {
		j.tally.breach(wrong, "%s shows %d pictures", p.id, len(images))
		return
	}
	i := images[0]
	name := i.Type + "/" + i.Subfolder + "/" + i.Filename
	if other := j.files[name]; other != "" {
		j.tally.breach(doubled, "%s and %s show %s", p.id, other, name)
	}
	j.files[name] = p.id
	var data []byte
	if err := j.retry(ctx, func() (err error) { data, err = j.c.view(ctx, j.c.hub(), i.Filename, i.Subfolder, i.Type); return err }); err != nil {
		j.tally.breach(lost, "the picture of %s: %v", p.id, err)
		return
	}
	j.tally.count(&j.tally.pictures)
	if err := p.check(data); err != nil {
		j.tally.breach(wrong, "%s: %v", p.id, err)
	}
}

// count adds up how often prompts were started.
func (j *judge) count(ctx context.Context, hub string, p *prompt) {
	if job, err := j.c.job(ctx, hub, p.id); err == nil {
		j.attempts += job.Attempts
		j.executed++
	}
}

// leaks looks for what should be gone: jobs and leases in Redis, spooled bodies.
func (j *judge) leaks(ctx context.Context) {
	leaves := map[string]bool{"q:body:": true, "q:secret:": true, "q:waiting": true, "q:wait:": true, "q:leases": true, "q:live": true, "q:instances": true, "q:caller:": true}
	err := j.retry(ctx, func() error {
		found := map[string]int{}
		keys, err := j.stage.store.keys(ctx)
		if err != nil {
			return err
		}
		for _, key := range keys {
			for leaf := range leaves {
				if strings.Contains(key, leaf) && !strings.Contains(key, "q:waiting_") {
					found[leaf]++
				}
			}
		}
		if len(found) > 0 {
			return fmt.Errorf("keys in Redis: %v", found)
		}
		return nil
	})
	if err != nil {
		j.tally.breach(leaked, "%v", err)
	}
	for _, h := range j.stage.hubs {
		spool := filepath.Join(h.Data, "spool")
		_ = filepath.WalkDir(spool, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				j.tally.breach(leaked, "%s", path)
			}
			return nil
		})
	}
}

// logs looks for panics, and counts what shows that faults had an effect.
func (j *judge) logs() {
	for _, p := range j.stage.programs() {
		text, err := os.ReadFile(p.LogFile())
		if err != nil {
			j.tally.breach(ended, "%v", err)
		}
		j.full += strings.Count(string(text), "no space left on device")
		j.waited += strings.Count(string(text), "accepts nothing until Redis and its storage work")
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, `"panic"`) || strings.Contains(line, "panic=") {
				j.tally.breach(panicked, "%s: %.300s", p.LogFile(), line)
			}
		}
		if !p.Running() {
			j.tally.breach(ended, "%s has ended by itself", p.Name())
		}
	}
}
