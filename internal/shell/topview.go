package shell

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/mattn/go-runewidth"
)

// The terminal's sequences for a chosen row.
const (
	reverse = "\x1b[7m"
	dim     = "\x1b[2m"
	plain   = "\x1b[0m"
)

// View implements [tea.Model].
func (t *top) View() tea.View {
	v := tea.NewView(t.screen(time.Now()))
	v.AltScreen = true
	return v
}

// screen is what the terminal shows.
func (t *top) screen(now time.Time) string {
	if t.at.IsZero() {
		if t.err != nil {
			return runewidth.Truncate(printable(t.err.Error()), max(t.width, 20), "…")
		}
		return "reading the fleet ..."
	}
	lines := t.fleet.summary()
	if rate, known := t.rate(); known {
		lines[2] += fmt.Sprintf(", %.1f a minute", rate)
	}
	for n, line := range lines {
		lines[n] = t.fit(line)
	}
	footer := t.footer(now)
	// Each list has its names of columns; a line is between all parts.
	room := max(t.height-len(lines)-len(footer)-3, 4)
	instances, jobs := instanceTable(t.fleet.Instances, now), jobTable(t.jobs(), now)
	upper := min(len(instances.rows), max(room-len(jobs.rows), (room+1)/2))
	lines = append(lines, "")
	lines = append(lines, t.list(instances, instancePane, upper)...)
	lines = append(lines, "")
	lines = append(lines, t.list(jobs, jobPane, room-upper)...)
	for len(lines) < t.height-len(footer) {
		lines = append(lines, "")
	}
	return strings.Join(append(lines, footer...), "\n")
}

// fit cuts a line to the width of the terminal, without what could steer it.
func (t *top) fit(line string) string {
	return runewidth.Truncate(printable(line), max(t.width, 20), "…")
}

// list is a part of a table with the chosen row in it, of at most height lines.
func (t *top) list(all *table, p pane, height int) []string {
	if height < 1 {
		return nil
	}
	lines := all.lines(max(t.width, 20))
	head, rows := lines[0], lines[1:]
	if len(rows) == 0 {
		return []string{dim + head + plain}
	}
	row := min(t.row(p), len(rows)-1)
	shown := max(min(height-1, len(rows)), 1)
	from := min(max(row-shown/2, 0), len(rows)-shown)
	out := []string{dim + head + plain}
	for n, line := range rows[from : from+shown] {
		if from+n == row && p == t.pane {
			line = reverse + runewidth.FillRight(line, max(t.width, 20)) + plain
		}
		out = append(out, line)
	}
	return out
}

// footer is a question, or what was done last, and the keys.
func (t *top) footer(now time.Time) []string {
	said := t.said
	switch {
	case t.asked != nil:
		said = t.asked.question + "? y does it, any other key does not"
	case said == "" && t.err != nil:
		said = "no answer for " + short(now.Sub(t.at)) + ": " + t.err.Error()
	}
	keys := "tab other list   c cancel   q quit"
	if t.fleet.Operator {
		keys = "tab other list   d drain   c cancel   p pause   q quit"
	}
	return []string{t.fit(said), dim + t.fit(keys) + plain}
}
