package discord

import (
	"context"
	"strings"
	"sync"
	"time"
)

// What begins the id of a message that is no message: the deferred answer to a slash
// command stands for what its author said, and a command whose deferred answer is not
// known has nothing but its own id.
const (
	ofAnswer  = "c"
	ofCommand = "x"
)

// answer is a message that is reached by the token of an interaction rather than by the
// bot's own: the deferred answer to a command, or a private message whose button was
// pressed. It is stored as JSON.
type answer struct {
	Token string    `json:"token"`
	Until time.Time `json:"until"`
	// Private means that only one person sees it.
	Private bool `json:"private,omitempty"`
	// Waiting means that it still says "thinking…".
	Waiting bool `json:"waiting,omitempty"`
	// Taken is the id of the post that has replaced it.
	Taken string `json:"taken,omitempty"`
}

func (a answer) alive(now time.Time) bool { return a.Token != "" && now.Before(a.Until) }

// maxAnswers bounds the answers that are known without asking the memory.
const maxAnswers = 10_000

// answers knows the answers by the ids of their messages.
type answers struct {
	memory Memory
	life   time.Duration

	mu    sync.Mutex
	known map[string]answer
}

func newAnswers(memory Memory, life time.Duration) *answers {
	return &answers{memory: memory, life: life, known: map[string]answer{}}
}

func answerName(message string) string { return "answer/" + message }

// put remembers an answer. It is not lost with the process once this returns nil.
func (a *answers) put(ctx context.Context, message string, one answer) error {
	now := time.Now()
	if one.Until.IsZero() {
		one.Until = now.Add(a.life)
	}
	a.mu.Lock()
	if len(a.known) >= maxAnswers {
		for id, old := range a.known {
			if !old.alive(now) {
				delete(a.known, id)
			}
		}
	}
	if len(a.known) < maxAnswers {
		a.known[message] = one
	}
	a.mu.Unlock()
	// It is kept longer than the token, because it also says which post has replaced it.
	return a.memory.Put(ctx, answerName(message), one, a.life+time.Hour)
}

// find returns the answer that is a message; false if it is an ordinary one.
func (a *answers) find(ctx context.Context, message string) (answer, bool, error) {
	a.mu.Lock()
	one, ok := a.known[message]
	a.mu.Unlock()
	if ok {
		return one, true, nil
	}
	ok, err := a.memory.Get(ctx, answerName(message), &one)
	return one, ok, err
}

// kill forgets the token of an answer that Discord does not take any more.
func (a *answers) kill(message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one, ok := a.known[message]; ok {
		one.Token = ""
		a.known[message] = one
	}
}

// press is a pressed button as the bridge knows it: the interaction and its token.
type press struct{ id, token string }

func (p press) String() string { return p.id + ":" + p.token }

// parsePress parses what String returned.
func parsePress(text string) (press, bool) {
	id, token, ok := strings.Cut(text, ":")
	return press{id, token}, ok && isID(id) && isToken(token)
}

// isID reports whether a text is an id of Discord: a number of up to 20 digits.
func isID(text string) bool {
	const longest = 20
	return text != "" && len(text) <= longest && strings.Trim(text, "0123456789") == "" && text[0] != '0'
}

// isToken reports whether a text can be the token of an interaction, and part of a path.
func isToken(text string) bool {
	const longest = 1024
	return text != "" && len(text) <= longest && text != "." && text != ".." &&
		strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.=") == ""
}
