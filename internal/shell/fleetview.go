package shell

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/mattn/go-runewidth"
)

// shortList is how many instances and jobs are shown unless all are asked for.
const shortList = 20

// states are those of instances, in the order in which they need attention: what is broken
// comes first.
var states = []string{"sick", "offline", "draining", "foreign", "busy", "idle"}

// byNeed sorts instances: those that need somebody come first, then by name.
func byNeed(list []Instance) {
	slices.SortStableFunc(list, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)), strings.Compare(a.Name, b.Name))
	})
}

// counts is the instances by state in words: "12: 5 idle, 7 busy".
func (s Stats) counts() string {
	total, parts := 0, []string(nil)
	for n := range states {
		state := states[len(states)-1-n]
		if count := s.Instances[state]; count > 0 {
			total += count
			parts = append(parts, strconv.Itoa(count)+" "+state)
		}
	}
	if total == 0 {
		return "none"
	}
	return strconv.Itoa(total) + ": " + strings.Join(parts, ", ")
}

// memory is the memory of a GPU in use: "9.8/24 GB".
func (i Instance) memory() string {
	if i.VRAMTotal <= 0 {
		return ""
	}
	const gib = 1 << 30
	return fmt.Sprintf("%.1f/%.0f GB", float64(max(i.VRAMTotal-i.VRAMFree, 0))/gib, float64(i.VRAMTotal)/gib)
}

// seen is how long ago an instance was heard of.
func (i Instance) seen(now time.Time) string {
	if i.LastSeen == 0 {
		return "never"
	}
	return short(now.Sub(time.Unix(i.LastSeen, 0)))
}

// note is what somebody should know of an instance.
func (i Instance) note() string {
	var parts []string
	if i.Reason != "" {
		parts = append(parts, i.Reason)
	}
	switch {
	case i.Restarts == 1:
		parts = append(parts, "restarted once")
	case i.Restarts > 1:
		parts = append(parts, fmt.Sprintf("restarted %d times", i.Restarts))
	}
	if i.RestartAt > 0 {
		parts = append(parts, "next restart at "+time.Unix(i.RestartAt, 0).Format(time.TimeOnly))
	}
	if i.RestartError != "" {
		parts = append(parts, "the last restart failed: "+i.RestartError)
	}
	if len(i.Reserved) > 0 && len(parts) == 0 {
		return "only for " + strings.Join(i.Reserved, ", ")
	}
	return strings.Join(parts, "; ")
}

// short is a time in one unit: 5s, 12m, 3h, 4d.
func short(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

// wait is what a job waits for, or how far it is.
func (j FleetJob) wait() string {
	j.Status = plainStatus(j.Status)
	switch {
	case j.Paused:
		return "paused"
	case j.Status == StatusQueued && j.ETA != nil:
		return "done in " + short(time.Duration(*j.ETA*float64(time.Second)))
	case j.Status == StatusQueued:
		return "queued"
	}
	text := strconv.Itoa(int(100*min(max(j.Progress, 0), 1))) + "%"
	if j.ETA != nil {
		text += ", " + short(time.Duration(*j.ETA*float64(time.Second))) + " left"
	}
	return text
}

// age is how long ago a job was accepted, or began to run.
func (j FleetJob) age(now time.Time) string {
	from := j.Created
	if j.Started > 0 {
		from = j.Started
	}
	return short(now.Sub(time.UnixMilli(int64(from * 1000))))
}

// table is rows of cells, the first with the names of columns.
type table struct{ rows [][]string }

func (t *table) add(cells ...string) {
	for n := range cells {
		cells[n] = printable(cells[n])
	}
	t.rows = append(t.rows, cells)
}

// maxCell is how wide a cell but the last may be where the width is limited.
const maxCell = 28

// lines lays the table out in a width; the last column gets what is left, and no line is
// longer. With a width of 0 nothing is cut.
func (t *table) lines(width int) []string {
	var widths []int
	for _, row := range t.rows {
		for n, cell := range row {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], runewidth.StringWidth(cell))
			if width > 0 {
				widths[n] = min(widths[n], maxCell)
			}
		}
	}
	lines := make([]string, len(t.rows))
	for r, row := range t.rows {
		var line strings.Builder
		for n, cell := range row {
			if n < len(row)-1 {
				if width > 0 {
					cell = runewidth.Truncate(cell, maxCell, "…")
				}
				cell = runewidth.FillRight(cell, widths[n]) + "  "
			}
			line.WriteString(cell)
		}
		lines[r] = strings.TrimRight(line.String(), " ")
		if width > 0 {
			lines[r] = runewidth.Truncate(lines[r], width, "…")
		}
	}
	return lines
}

// instanceTable lists instances. Without a width, whoever reads is a program, which needs whole ids.
func instanceTable(list []Instance, width int, now time.Time) *table {
	t := &table{}
	t.add("INSTANCE", "STATE", "RUNNING", "VRAM", "SEEN", "GPU", "NOTE")
	for _, i := range list {
		running := i.Running
		if width > 0 {
			running = shortID(running)
		}
		t.add(i.Name, i.State, running, i.memory(), i.seen(now), shortGPU(i.GPU), i.note())
	}
	return t
}

// jobTable lists jobs.
func jobTable(list []FleetJob, now time.Time) *table {
	t := &table{}
	t.add("JOB", "STATUS", "AGE", "TENANT", "INSTANCE", "PROGRESS")
	for _, j := range list {
		t.add(j.ID, plainStatus(j.Status), j.age(now), j.Tenant, j.Instance, j.wait())
	}
	return t
}

// shortID is the beginning of an id, which is enough to find it.
func shortID(id string) string {
	if len(id) > 8 {
		return id[:8]
	}
	return id
}

// shortGPU is the name of a GPU without what all have.
func shortGPU(name string) string {
	name, _, _ = strings.Cut(name, " : ") // the allocator, in ComfyUI's names
	for _, vendor := range []string{"cuda:0 ", "cuda:1 ", "NVIDIA ", "GeForce "} {
		name = strings.Replace(name, vendor, "", 1)
	}
	return name
}

// summary is a fleet in a few lines.
func (f Fleet) summary() []string {
	hub := f.From
	if f.Operator {
		hub += " (admin endpoint: everybody's jobs)"
	}
	if f.Stats.Paused {
		hub += "; the queue is PAUSED: resume"
	}
	jobs := humanize.Comma(int64(f.Stats.Running)) + " running, " + humanize.Comma(int64(f.Stats.Queued)) + " waiting"
	if f.Stats.Ended != nil {
		jobs += ", " + humanize.Comma(*f.Stats.Ended) + " ended"
	}
	lines := []string{
		"Hub        " + hub,
		"Instances  " + f.Stats.counts(),
		"Jobs       " + jobs,
		"Sockets    " + humanize.Comma(int64(f.Stats.Sockets)),
	}
	if f.Stats.Switches+f.Stats.Saved > 0 {
		lines = append(lines, "Models     "+humanize.Comma(f.Stats.Switches)+" switches in 24 hours, "+humanize.Comma(f.Stats.Saved)+" saved")
	}
	lines = append(lines, f.Spare.lines()...)
	if f.Stats.Strangers != "" {
		lines = append(lines, "Storage    Redis and the storage belong to different hubs; nothing is deleted: check")
	}
	return lines
}

// show writes a fleet in one screen, or all of it.
func (f Fleet) show(out io.Writer, all bool, width int, now time.Time) {
	for _, line := range f.summary() {
		fmt.Fprintln(out, printable(line))
	}
	byNeed(f.Instances)
	shown := f.Instances
	if !all {
		shown = shown[:min(len(shown), shortList)]
	}
	section := func(t *table, rest int, what string) {
		if len(t.rows) == 1 {
			return
		}
		fmt.Fprintln(out)
		for _, line := range t.lines(width) {
			fmt.Fprintln(out, line)
		}
		if rest > 0 {
			fmt.Fprintf(out, "... and %d more %s\n", rest, what)
		}
	}
	section(instanceTable(shown, width, now), len(f.Instances)-len(shown), "instances: --all shows them")
	jobs := append(slices.Clone(f.Running), f.Queued...)
	if !all {
		jobs = jobs[:min(len(jobs), shortList)]
	}
	section(jobTable(jobs, now), f.Stats.Running+f.Stats.Queued-len(jobs), "jobs")
}
