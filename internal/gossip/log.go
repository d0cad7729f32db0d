package gossip

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"
)

// quiet is how long a message of one kind is not repeated above debug level.
// memberlist logs one for each packet that it cannot read.
const quiet = time.Minute

// newLog turns memberlist's lines ("[WARN] memberlist: ...") into records.
func newLog(logger *slog.Logger) *log.Logger {
	return log.New(&lineWriter{logger: logger, last: map[string]time.Time{}}, "", 0)
}

type lineWriter struct {
	logger *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time
}

var address = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+|\[[0-9a-f:]+\]:\d+`)

// Write logs one line.
func (w *lineWriter) Write(line []byte) (int, error) {
	level, text := parseLine(string(bytes.TrimSpace(line)))
	if strings.Contains(text, "No installed keys could decrypt") {
		level, text = slog.LevelWarn, "a member has another gossip key: "+text
	}
	if strings.Contains(text, errUnmet.Error()) {
		level = slog.LevelDebug // what matters of it is said where reports are refused
	}
	if level > slog.LevelDebug && w.repeated(text) {
		level = slog.LevelDebug
	}
	w.logger.Log(context.Background(), level, text, "component", "gossip")
	return len(line), nil
}

// parseLine returns the level and text of a line. What memberlist logs as an error
// is only a lost packet to us, and it repairs by itself what it warns of.
func parseLine(line string) (slog.Level, string) {
	level, rest := slog.LevelDebug, line
	if tag, after, ok := strings.Cut(line, "] "); ok && strings.HasPrefix(tag, "[") {
		rest = after
		switch tag {
		case "[ERR":
			level = slog.LevelWarn
		case "[WARN":
			level = slog.LevelInfo
		}
	}
	return level, strings.TrimPrefix(rest, "memberlist: ")
}

func (w *lineWriter) repeated(text string) bool {
	kind := address.ReplaceAllString(text, "")
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.last[kind]) < quiet {
		return true
	}
	if len(w.last) > 1000 {
		clear(w.last)
	}
	w.last[kind] = now
	return false
}
