package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/stage"
)

// ada is the scripted person.
const ada = 1001

// errUnexpected means that a step did not happen as expected.
var errUnexpected = errors.New("that did not happen")

// play is the script.
func play(ctx context.Context, s *stage.Stage) error {
	person := s.Fake.Person(ada, "en")
	t := &transcript{begin: time.Now(), seen: map[int]string{}}
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { t.watch(watching, person) })
	defer watch.Wait()
	defer stop()

	pictures := func(n int) func([]fakebot.Message) bool {
		return func(list []fakebot.Message) bool { return count(list, isPicture) >= n }
	}
	person.Say("/generate a lighthouse on a cliff at dawn --ar 3:2")
	list, err := person.Wait(ctx, func(list []fakebot.Message) bool {
		return count(list, func(m fakebot.Message) bool { return strings.Contains(m.Text, "%") }) > 0
	})
	if err != nil {
		return fmt.Errorf("progress: %w (%d messages)", errUnexpected, len(list))
	}
	if list, err = person.Wait(ctx, pictures(1)); err != nil {
		return fmt.Errorf("the picture: %w", errUnexpected)
	}
	picture, _ := fakebot.Find(list, isPicture)
	if err := press(person, t, picture, "Again"); err != nil {
		return err
	}
	if _, err = person.Wait(ctx, pictures(2)); err != nil {
		return fmt.Errorf("the second picture: %w", errUnexpected)
	}

	person.Say("/generate a very slow snail --steps 60")
	list, err = person.Wait(ctx, func(list []fakebot.Message) bool {
		m, ok := fakebot.Find(list, func(m fakebot.Message) bool { return m.FromBot })
		return ok && !isPicture(m) && hasButton(m, "Cancel")
	})
	if err != nil {
		return fmt.Errorf("the third request: %w", errUnexpected)
	}
	status, _ := fakebot.Find(list, func(m fakebot.Message) bool { return m.FromBot })
	if err := press(person, t, status, "Cancel"); err != nil {
		return err
	}
	if _, err = person.Wait(ctx, func(list []fakebot.Message) bool {
		m, _ := fakebot.Find(list, func(m fakebot.Message) bool { return m.ID == status.ID })
		return m.Text == "Stopped."
	}); err != nil {
		return fmt.Errorf("the end of the third request: %w", errUnexpected)
	}
	if err := playMore(ctx, person, t); err != nil {
		return err
	}
	stop()
	watch.Wait()
	if over, worst := s.Fake.TooFast(); over > 0 {
		return fmt.Errorf("%d calls broke Telegram's limits (%+v)", over, worst)
	}
	fmt.Println("\nAll of it as it should be: two pictures, one request stopped, four pictures as one, Telegram's limits kept.")
	return nil
}

// playMore asks what a command takes, makes a mistake, and chooses one of four pictures.
func playMore(ctx context.Context, person *fakebot.Person, t *transcript) error {
	says := func(what, text string) error {
		_, err := person.Wait(ctx, func(list []fakebot.Message) bool {
			return count(list, func(m fakebot.Message) bool { return m.FromBot && strings.Contains(m.Text, text) }) > 0
		})
		if err != nil {
			return fmt.Errorf("%s: %w", what, errUnexpected)
		}
		return nil
	}
	person.Say("/help generate")
	if err := says("what the command takes", "--sampler: "); err != nil {
		return err
	}
	person.Say("/generate a harbour at night --cfg 400")
	if err := says("the range of an argument", "--cfg is from 0 to 100"); err != nil {
		return err
	}
	person.Say("/generate a harbour at night -n 4 --cfg 4 --sampler DPMPP-2M")
	isSheet := func(m fakebot.Message) bool { return isPicture(m) && hasButton(m, "U2") }
	list, err := person.Wait(ctx, func(list []fakebot.Message) bool { return count(list, isSheet) > 0 })
	if err != nil {
		return fmt.Errorf("four pictures as one: %w", errUnexpected)
	}
	sheet, _ := fakebot.Find(list, isSheet)
	if err := press(person, t, sheet, "More"); err != nil {
		return err
	}
	if err := says("what made the pictures", "--sampler dpmpp_2m"); err != nil {
		return err
	}
	if err := press(person, t, sheet, "U2"); err != nil {
		return err
	}
	_, err = person.Wait(ctx, func(list []fakebot.Message) bool {
		m, ok := fakebot.Find(list, isPicture)
		return ok && m.ID != sheet.ID
	})
	if err != nil {
		return fmt.Errorf("the second picture, large: %w", errUnexpected)
	}
	return nil
}

func press(p *fakebot.Person, t *transcript, m fakebot.Message, label string) error {
	for _, b := range m.Buttons {
		if strings.Contains(b.Label, label) {
			t.print("Ada", "presses [%s]", b.Label)
			p.Press(m.ID, b.Data)
			return nil
		}
	}
	return fmt.Errorf("the button %s: %w", label, errUnexpected)
}

func isPicture(m fakebot.Message) bool { return m.FromBot && m.Kind == "photo" }

func hasButton(m fakebot.Message, label string) bool {
	return count([]fakebot.Message{m}, func(m fakebot.Message) bool {
		for _, b := range m.Buttons {
			if strings.Contains(b.Label, label) {
				return true
			}
		}
		return false
	}) > 0
}

func count(list []fakebot.Message, fits func(fakebot.Message) bool) (n int) {
	for _, m := range list {
		if fits(m) {
			n++
		}
	}
	return n
}

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
		if m.Kind != "text" {
			text = fmt.Sprintf("[%s, %d x %d, %d kB] %s", m.Kind, m.File.Width, m.File.Height, m.File.Size/1000, m.Text)
		}
		old, known := t.seen[m.ID]
		if known && old == text {
			continue
		}
		t.seen[m.ID], news = text, true
		who, verb := "Ada", ""
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
