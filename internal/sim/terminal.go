package sim

import (
	"net/http"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// terminal is the log of a process, with the local time of its machine, as ComfyUI has it.
type terminal struct {
	mu      sync.Mutex
	entries pyjson.Array
}

// maxEntries is how many of the last entries a process keeps.
const maxEntries = 300

func (t *terminal) write(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = append(t.entries, dict("t", time.Now().Format("2006-01-02T15:04:05.000000"), "m", text))
	t.entries = t.entries[max(0, len(t.entries)-maxEntries):]
}

func (p *process) getRawLogs(w http.ResponseWriter, _ *http.Request) {
	p.terminal.mu.Lock()
	entries := append(pyjson.Array{}, p.terminal.entries...)
	p.terminal.mu.Unlock()
	answerJSON(w, http.StatusOK, dict("entries", entries, "size", dict("cols", 80, "rows", 24)))
}
