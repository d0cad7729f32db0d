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
	// showing is held while what is new is printed.
	showing sync.Mutex
	seen    map[int]string // what was printed for each message
	// toasts are the answers to presses that were printed.
	toasts map[string]bool
}

// toastsOf returns what was shown for a moment after each press.
func toastsOf(f *fakebot.Fake) map[string]string {
	toasts := map[string]string{}
	for _, a := range f.Answers() {
		toasts[a.ID] = a.Text
	}
	return toasts
}

// watch prints each new or changed message until ctx ends.
func (t *transcript) watch(ctx context.Context, f *fakebot.Fake, p *fakebot.Person) {
	for {
		_, err := p.Wait(ctx, func(list []fakebot.Message) bool {
			news := t.show(list)
			return t.pop(f) || news
		})
		if err != nil {
			return
		}
	}
}

// show prints what is new and reports whether there was anything.
func (t *transcript) show(list []fakebot.Message) (news bool) {
	t.showing.Lock()
	defer t.showing.Unlock()
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

// pop prints what is shown for a moment, and reports whether there was anything.
func (t *transcript) pop(f *fakebot.Fake) (news bool) {
	for id, text := range toastsOf(f) {
		if text != "" && !t.toasts[id] {
			t.toasts[id], news = true, true
			t.print("bot", "(for a moment) %s", text)
		}
	}
	return news
}

// labels returns the buttons of a message, each row on a line of its own.
func labels(m fakebot.Message) string {
	var b strings.Builder
	for i, button := range m.Buttons {
		if i == 0 || button.Row != m.Buttons[i-1].Row {
			b.WriteString("\n" + strings.Repeat(" ", 13))
		}
		b.WriteString(" [" + button.Label + "]")
	}
	return b.String()
}

func (t *transcript) print(who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Printf("%6.1fs  %-4s %s\n", time.Since(t.begin).Seconds(), who, fmt.Sprintf(format, args...))
}
