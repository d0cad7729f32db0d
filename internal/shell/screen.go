package shell

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// barWidth is that of the progress bar, in characters.
const barWidth = 24

// screen shows how a job goes on: one line that changes on a terminal, a line for each
// change elsewhere.
type screen struct {
	to io.Writer
	// width and height are those of the terminal, 0 if there is none.
	width, height func() int
	now           func() time.Time
	last          string
	open          bool // the last line has no end
}

func newScreen(to io.Writer) *screen {
	none := func() int { return 0 }
	s := &screen{to: to, width: none, height: none, now: time.Now}
	if file, ok := to.(*os.File); ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" {
		s.width = func() int {
			width, _, err := term.GetSize(int(file.Fd()))
			if err != nil {
				return 80
			}
			return max(width, 20)
		}
		s.height = func() int {
			_, height, err := term.GetSize(int(file.Fd()))
			if err != nil {
				return 24
			}
			return max(height, 8)
		}
	}
	return s
}

// show shows a job.
func (s *screen) show(j Job) {
	width := s.width()
	if width == 0 {
		if text := printable(j.ID) + " " + s.plain(j); text != s.last {
			s.last = text
			fmt.Fprintln(s.to, s.now().Format(time.TimeOnly), text)
		}
		return
	}
	text := j.String()
	if j.Status == StatusProcessing {
		full := int(barWidth * min(max(j.Progress, 0), 1))
		text = "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "] " + text
	}
	if runes := []rune(text); len(runes) >= width && !j.Over() {
		text = string(runes[:width-1])
	}
	fmt.Fprint(s.to, "\r\x1b[K", text)
	s.open = true
	if j.Over() {
		s.end()
	}
}

// plain is a job without what changes all the time: a log has a line for each tenth.
func (s *screen) plain(j Job) string {
	if !j.Over() {
		j.ETA = nil
		j.Progress = float64(int(j.Progress*10)) / 10
	}
	return j.String()
}

// say writes a line of its own.
func (s *screen) say(format string, args ...any) {
	s.end()
	fmt.Fprintf(s.to, format+"\n", args...)
}

// end ends the line that changes.
func (s *screen) end() {
	if s.open {
		fmt.Fprintln(s.to)
		s.open = false
	}
}
