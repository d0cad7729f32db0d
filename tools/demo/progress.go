package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const barWidth = 30

// progress shows how far a prompt is: one line that is drawn again and again
// in a terminal, and plain lines, fewer of them, anywhere else.
type progress struct {
	w        io.Writer
	terminal bool
	drawn    bool   // a line is on the screen that the next one replaces
	quarter  int    // the last quarter of a node that a plain line told
	node     string // the node that the plain lines are about
}

func newProgress(f *os.File) *progress {
	info, err := f.Stat()
	return &progress{w: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// step shows that a node has done value of total steps. previews counts the
// preview images so far.
func (p *progress) step(node string, value, total, previews int) {
	if total <= 0 {
		return
	}
	value = min(max(value, 0), total)
	if p.terminal {
		filled := barWidth * value / total
		bar := strings.Repeat("█", filled) + strings.Repeat("░", barWidth-filled)
		fmt.Fprintf(p.w, "\r\x1b[K%-10s%-24s %s %d/%d%s", "running", node, bar, value, total, shown(previews))
		p.drawn = true
		return
	}
	if node != p.node {
		p.node, p.quarter = node, 0
	}
	if quarter := 4 * value / total; quarter > p.quarter {
		p.quarter = quarter
		fmt.Fprintf(p.w, "%-10s%s %d/%d%s\n", "running", node, value, total, shown(previews))
	}
}

// line shows a step of the prompt's way that is not a measure.
func (p *progress) line(step, text string) {
	if p.drawn {
		fmt.Fprintln(p.w)
		p.drawn = false
	}
	fmt.Fprintf(p.w, "%-10s%s\n", step, text)
}

func shown(previews int) string {
	switch previews {
	case 0:
		return ""
	case 1:
		return ", 1 preview"
	}
	return fmt.Sprintf(", %d previews", previews)
}
