package request

import (
	"context"
	"strings"
	"time"
)

// resultGone is the Reason of a run whose files the hub no longer has.
const resultGone = "result_gone"

// Fault is a run that failed, for whoever runs the bot.
type Fault struct {
	At      time.Time
	Command string
	// Said is what the node or the hub said, without the words of the request.
	Said string
}

// LastFault returns the last run that failed since this process began, nil if none did.
func (r *Runner) LastFault() *Fault { return r.fault.Load() }

// fail ends a request whose run has failed.
func (j *job) fail(ctx context.Context, said string) error {
	said = j.rec.withoutWords(said)
	j.r.o.Logger.Warn("a run failed", "request", j.rec.ID, "command", j.rec.Command, "error", said)
	j.r.fault.Store(&Fault{At: time.Now(), Command: j.rec.Command, Said: said})
	return j.entry.end(ctx, Failed, said)
}

// withoutWords removes what the user wrote from a text: an error may quote it, and no log
// may.
func (r *Record) withoutWords(text string) string {
	words := []string{r.Args.Prompt, r.Args.Negative}
	for _, value := range r.Args.Set {
		if strings.ContainsAny(value, " \n") { // a name of a sampler is no secret
			words = append(words, value)
		}
	}
	for _, word := range words {
		for line := range strings.Lines(word) {
			if line = strings.TrimSpace(line); len(line) > 2 {
				text = strings.ReplaceAll(text, line, "…")
			}
		}
	}
	return text
}

// fault says in the user's language why a run failed. What the node said has paths and advice
// for programmers in it.
func (w *wording) fault(said string) string {
	key, lower := "fault_node", strings.ToLower(said)
	has := func(part string) bool { return strings.Contains(lower, part) }
	switch {
	case said == resultGone:
		key = resultGone
	case has("out of memory"), has("outofmemory"), has("allocation on device"), has("not enough memory"):
		key = "fault_memory"
	case strings.HasPrefix(lower, "attempt "): // the hub's own words
		key = "fault_server"
	}
	return w.say(key, nil)
}
