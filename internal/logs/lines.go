package logs

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// maxLines bounds the lines of all logs together; an instance keeps 300 entries.
const maxLines = 3000

// lines joins the logs of several instances as they come. An instance writes in
// pieces: a line with its end, a line and then its end, or, for a progress bar,
// a return and the bar. Pieces of two instances must not end up on one line.
type lines struct {
	mu sync.Mutex
	// open is the instance whose line has not ended yet, "" for none.
	open string
}

// labelled puts labels into the entries of a message of one instance.
func (l *lines) labelled(instance string, entries pyjson.Array) pyjson.Array {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(pyjson.Array, 0, len(entries))
	for _, e := range entries {
		entry, ok := e.(*pyjson.Object)
		if !ok {
			continue
		}
		if text := l.piece(instance, entry.String("m")); text != "" {
			out = append(out, Entry(entry.String("t"), text))
		}
	}
	return out
}

// message is a message of one instance with labels, nil if nothing is left of it.
// It changes the size of nobody's terminal: that is one for all instances.
func (l *lines) message(instance string, frame []byte) []byte {
	v, err := pyjson.Parse(frame)
	if err != nil {
		return nil
	}
	m, _ := v.(*pyjson.Object)
	entries := l.labelled(instance, m.Object("data").Array("entries"))
	if len(entries) == 0 {
		return nil
	}
	return pyjson.Marshal(pyjson.NewObject(
		pyjson.Member{Key: "type", Value: pyjson.String("logs")},
		pyjson.Member{Key: "data", Value: pyjson.NewObject(
			pyjson.Member{Key: "entries", Value: entries}, pyjson.Member{Key: "size", Value: pyjson.Null{}},
		)},
	))
}

// piece is a piece of an instance's log with labels.
func (l *lines) piece(instance, text string) string {
	if text == "" {
		return ""
	}
	var b strings.Builder
	inLine := l.open == instance
	if !inLine && l.open != "" && !strings.HasPrefix(text, "\r") {
		b.WriteByte('\n') // another one's line has not ended
	}
	for len(text) > 0 {
		end := strings.IndexAny(text, "\r\n") + 1
		if end == 0 {
			end = len(text)
		}
		if strings.HasPrefix(text[end:], "\n") && text[end-1] == '\r' {
			end++ // one end of a line
		}
		part := text[:end]
		text = text[end:]
		if !inLine && part != "\r" && part != "\r\n" {
			b.WriteString(label(instance))
		}
		b.WriteString(part)
		inLine = !strings.HasSuffix(part, "\n") && !strings.HasSuffix(part, "\r")
	}
	switch {
	case strings.HasSuffix(b.String(), "\n"):
		l.open = ""
	default:
		l.open = instance
	}
	return b.String()
}

func label(instance string) string { return "[" + instance + "] " }

// Entry is a piece of a log as ComfyUI writes it in JSON.
func Entry(time, text string) *pyjson.Object {
	return pyjson.NewObject(
		pyjson.Member{Key: "t", Value: pyjson.String(time)},
		pyjson.Member{Key: "m", Value: pyjson.String(text)},
	)
}

// Line is a line of one instance's log, or several that were written at once,
// with the instance's name and the end of the line.
type Line struct {
	// Time is when it was written, in the instance's own form.
	Time string
	Text string
}

// wholeLines joins the pieces of one instance's log to lines, each with its label. A bar
// that was drawn over is shown as it was last.
func wholeLines(label string, entries pyjson.Array) []Line {
	var out []Line
	var at, line string
	flush := func() {
		if body := strings.TrimRight(line, "\n"); strings.Trim(body, "\r") != "" {
			rows := strings.Split(body, "\n")
			for n, row := range rows {
				row = strings.TrimRight(row, "\r")
				rows[n] = label + row[strings.LastIndexByte(row, '\r')+1:] + "\n"
			}
			out = append(out, Line{at, strings.Join(rows, "")})
		}
		at, line = "", ""
	}
	for _, e := range entries {
		entry, ok := e.(*pyjson.Object)
		if !ok {
			continue
		}
		if at == "" {
			at = entry.String("t")
		}
		line += entry.String("m")
		if strings.HasSuffix(line, "\n") {
			flush()
		}
	}
	flush()
	return out
}

// Join joins the logs of instances, the entries by the instance's name, into
// lines in order of time. Of more than 3000 lines the newest are kept.
func Join(logs map[string]pyjson.Array) []Line {
	var all []Line
	names := make([]string, 0, len(logs))
	for name := range logs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		all = append(all, wholeLines(label(name), logs[name])...)
	}
	slices.SortStableFunc(all, func(a, b Line) int { return cmp.Compare(a.Time, b.Time) })
	return all[max(0, len(all)-maxLines):]
}
