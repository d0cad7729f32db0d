// Package fakediscord plays the part of Discord that the bridge uses, for tests: the
// REST API of version 10 and the gateway. It accepts and refuses the same calls as the
// real one, and fails on request. Each call and each answer is held against Discord's
// own OpenAPI document (schema.go), and each message of the gateway, in both directions,
// against a schema that follows the documents at docs.discord.com (testdata/gateway.json).
//
// It knows nothing about the bridge. A test plays the people (person.go) and looks at
// what they see.
package fakediscord

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// The bot that the fake knows.
const (
	Token       = "MTIzNDU2Nzg5MDEyMzQ1Njc4.GfAkEt.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" //nolint:gosec // it opens nothing
	Application = "123456789012345678"
	BotUser     = "223456789012345678"
	BotName     = "comfy_test"
)

// Fault is a way in which a call fails.
type Fault int

// The faults.
const (
	// None: the call works.
	None Fault = iota
	// Flood: status 429 for this limit, FloodAll for all of them.
	Flood
	FloodAll
	// Broken: status 500, and nothing happened.
	Broken
	// CutBefore: the connection is cut and nothing happened.
	CutBefore
	// CutAfter: the connection is cut after the call took effect.
	CutAfter
	// HangAfter: no answer until the client gives up, but the call took effect.
	HangAfter
)

// Options configure a Fake.
type Options struct {
	// Heartbeat is the interval that the gateway asks for. Default: 41250 ms.
	Heartbeat time.Duration
	// AckWithin is how long the first answer to an interaction may take, TokenLife how
	// long later ones. Default: 3 s and 15 min.
	AckWithin, TokenLife time.Duration
	// Fault decides how a call fails, by its method and its route as in Discord's
	// document, such as "POST /channels/{channel_id}/messages". nil: none does.
	Fault func(call string) Fault
	// RetryAfter is what a Flood asks to wait. Default: 1 s.
	RetryAfter time.Duration
	// PerFiveSeconds is how many messages, and how many edits, a channel takes in that time;
	// a negative number means any. Default: 5.
	PerFiveSeconds int
	// Upload is how large a file may be. Default: 10 MiB.
	Upload int
	// NoAccess are channels that the bot itself cannot write to.
	NoAccess []string
}

// Fake is the server.
type Fake struct {
	*interactions

	commands []map[string]any
	replaced int // how often the commands were
	calls    map[string]int
}

// place is what all parts of the fake share. mu guards them all.
type place struct {
	o      Options
	schema *schema

	mu         sync.Mutex
	nextID     int64
	violations []string
	changed    chan struct{} // closed whenever something changes that people see
	done       chan struct{}
}

// channels are where people write, and what is there.
type channels struct {
	*gateway

	guilds   map[string]string      // by channel
	messages map[string][]*Message  // by channel
	files    map[string][]byte      // by path
	posted   map[string][]time.Time // by route and channel
}

// interactions are what people do besides writing.
type interactions struct {
	*channels

	waiting map[string]*interaction // by token
}

// interaction is a command or a press that waits for its answer.
type interaction struct {
	id, token, channel, guild, user string
	kind                            int
	born                            time.Time
	acked                           bool
	answer                          *Message // nil before, and after it was deleted
	suggested                       []string // values for the argument that is filled in
	form                            *Form    // what it opened
}

// New returns a fake. Close it.
func New(o Options) (*Fake, error) {
	for field, value := range map[*time.Duration]time.Duration{
		&o.Heartbeat: 41250 * time.Millisecond, &o.AckWithin: 3 * time.Second, &o.TokenLife: 15 * time.Minute, &o.RetryAfter: time.Second,
	} {
		if *field == 0 {
			*field = value
		}
	}
	o.Upload = cmp.Or(o.Upload, 10<<20)
	o.PerFiveSeconds = cmp.Or(o.PerFiveSeconds, 5)
	s, err := loadSchema()
	if err != nil {
		return nil, err
	}
	g := &gateway{
		place:    &place{o: o, schema: s, nextID: 1400000000000000000, changed: make(chan struct{}), done: make(chan struct{})},
		sessions: map[string]*gatewaySession{}, conns: map[*gatewayConn]bool{},
	}
	c := &channels{
		gateway: g, guilds: map[string]string{}, messages: map[string][]*Message{}, files: map[string][]byte{}, posted: map[string][]time.Time{},
	}
	return &Fake{interactions: &interactions{c, map[string]*interaction{}}, calls: map[string]int{}}, nil
}

// Close ends all connections to the gateway, and calls that hang.
func (f *place) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.done:
	default:
		close(f.done)
	}
}

// Calls returns how often a call was made, such as "PUT /applications/{application_id}/commands".
func (f *Fake) Calls(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

// Violations are the calls and answers that do not fit Discord's document.
func (f *place) Violations() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.violations...)
}

// SetFault changes how calls fail.
func (f *place) SetFault(fault func(call string) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.o.Fault = fault
}

// Expire ends the tokens of all interactions, as if 15 minutes had passed.
func (f *interactions) Expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.waiting {
		in.born = in.born.Add(-f.o.TokenLife)
	}
}

// Commands returns the registered commands, and how often they were replaced.
func (f *Fake) Commands() (commands []map[string]any, replaced int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]map[string]any(nil), f.commands...), f.replaced
}

// id returns a new snowflake; the caller holds mu.
func (f *place) id() string {
	f.nextID += 4194304
	return strconv.FormatInt(f.nextID, 10)
}

// touch wakes everybody who waits for a change; the caller holds mu.
func (f *place) touch() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// refusal is an error as Discord answers it.
type refusal struct {
	status, code int
	message      string
}

func refuse(status, code int, format string, args ...any) *refusal {
	return &refusal{status, code, fmt.Sprintf(format, args...)}
}

// Errors as Discord has them.
func unknownMessage() *refusal { return refuse(http.StatusNotFound, 10008, "Unknown Message") }
func unknownWebhook() *refusal { return refuse(http.StatusNotFound, 10015, "Unknown Webhook") }
func invalidToken() *refusal {
	return refuse(http.StatusUnauthorized, 50027, "Invalid Webhook Token")
}

func invalidForm(format string, args ...any) *refusal {
	return refuse(http.StatusBadRequest, 50035, "Invalid Form Body: "+format, args...)
}

// write writes an answer.
func write(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
