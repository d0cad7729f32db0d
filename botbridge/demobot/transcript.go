package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// transcript prints a chat as it goes.
type transcript struct {
	begin time.Time
	mu    sync.Mutex
	seen  map[int]string // what was printed for each message
}

// watch prints each new or changed message until ctx ends.
func (t *transcript) watch(ctx context.Context, p *fakebot.Person) {
	for {
		_, err := p.Wait(ctx, func(list []fakebot.Message) bool { return t.show(list) })
		if err != nil {
			return
		}
	}
}

// show prints what is new and reports whether there was anything.
func (t *transcript) show(list []fakebot.Message) (news bool) {
	here := map[int]bool{}
	for _, m := range list {
		here[m.ID] = true
		text := m.Text
		switch {
		case m.Invoice != nil:
			text = fmt.Sprintf("[invoice: %d Stars] %s", m.Invoice.Stars, m.Invoice.Description)
		case m.Kind != "text" && m.File.Size == 0:
			text = fmt.Sprintf("[%s] %s", m.Kind, m.Text)
		case m.Kind != "text":
			text = fmt.Sprintf("[%s, %d x %d, %d kB] %s", m.Kind, m.File.Width, m.File.Height, m.File.Size/1000, m.Text)
		}
		old, known := t.seen[m.ID]
		if known && old == text {
			continue
		}
		t.seen[m.ID], news = text, true
		who, verb := "Ada", ""
		if m.ReplyTo != 0 && !m.FromBot {
			verb = "(replies) "
		}
		if m.FromBot {
			who = "bot"
		}
		if known {
			verb = "(edits) "
		}
		t.print(who, "%s%s%s", verb, strings.ReplaceAll(text, "\n", " | "), labels(m))
	}
	for id := range t.seen {
		if !here[id] {
			delete(t.seen, id)
			t.print("bot", "(removes its status message)")
			news = true
		}
	}
	return news
}

func labels(m fakebot.Message) string {
	var b strings.Builder
	for _, button := range m.Buttons {
		b.WriteString("  [" + button.Label + "]")
	}
	return b.String()
}

func (t *transcript) print(who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Printf("%6.1fs  %-4s %s\n", time.Since(t.begin).Seconds(), who, fmt.Sprintf(format, args...))
}
