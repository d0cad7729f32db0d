// Package fakebot plays Telegram's Bot API for tests and for the demonstration. It
// accepts and refuses the same calls as the real one, measures how fast it is
// called, and fails on request.
//
// It knows nothing about the bridge. A test plays the people (person.go) and looks
// at what they see.
package fakebot

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Token is the token that the fake knows.
const Token = "4242:fake-token-for-tests"

// Username is the bot's name.
const Username = "comfy_test_bot"

// Fault is a way in which a call fails.
type Fault int

// The faults.
const (
	// None: the call works.
	None Fault = iota
	// Flood: status 429 with retry_after.
	Flood
	// Broken: status 500, and nothing happened.
	Broken
	// CutBefore: the connection is cut and nothing happened.
	CutBefore
	// CutAfter: the connection is cut after the call took effect.
	CutAfter
	// Hang: no answer until the client gives up, and nothing happened.
	Hang
	// HangAfter: no answer until the client gives up, but the call took effect.
	HangAfter
	// Gateway: something before Telegram answers with a page of HTML, and nothing happened.
	Gateway
	// GatewayAfter: the same, but the call took effect.
	GatewayAfter
)

// Options configure a Fake.
type Options struct {
	// Scale multiplies the limits. Default: 1, the real limits.
	Scale float64
	// Enforce answers 429 to calls over the limits. They are counted in any case.
	Enforce bool
	// Fault decides how a call fails. If it is nil, no call fails. It is called for
	// all methods except getUpdates.
	Fault func(method string) Fault
	// Local is the folder of a server with --local; "" for one that passes files on.
	Local string
	// Inline means that people can call the bot from any chat.
	Inline bool
	// RetryAfter is the retry_after of a Flood, in seconds. Default: 1.
	RetryAfter int
}

// Fake is the server.
type Fake struct {
	*chats
	*menus
	*money
	*queries

	answers []Answer
	calls   map[string]int
	pace    pace
}

// place is what all parts of the fake share. mu guards them all.
type place struct {
	o       Options
	mu      sync.Mutex
	changed chan struct{} // closed whenever something changes that people see
	done    chan struct{}
}

// chats are where people write, and what is there.
type chats struct {
	*delivery

	nextID   map[int64]int // by supergroup; all other chats of a bot share one, 0
	fileID   int
	messages map[int64][]*Message // by chat
	files    map[string][]byte
	sizes    map[string]int64     // of files that are larger than what is kept of them
	presses  map[string]time.Time // that can still be answered
	topics   map[topic]bool       // true while open
	blocked  map[int64]bool
	quiet    map[int64]string // what the bot may not do in a group, as Telegram says it
	moved    map[int64]int64  // groups that have become supergroups
	// moderators may remove other people's messages in every group.
	moderators map[int64]bool
}

// Answer is the answer to a pressed button.
type Answer struct{ ID, Text string }

// New returns a fake.
func New(o Options) *Fake {
	o.Scale = cmp.Or(o.Scale, 1)
	o.RetryAfter = cmp.Or(o.RetryAfter, 1)
	all := &place{o: o, changed: make(chan struct{}), done: make(chan struct{})}
	c := &chats{
		delivery: &delivery{place: all, arrived: make(chan struct{}), posting: map[string]bool{}},
		nextID:   map[int64]int{}, messages: map[int64][]*Message{}, files: map[string][]byte{}, sizes: map[string]int64{}, presses: map[string]time.Time{}, topics: map[topic]bool{}, blocked: map[int64]bool{}, quiet: map[int64]string{}, moved: map[int64]int64{}, moderators: map[int64]bool{},
	}
	return &Fake{
		chats: c, menus: &menus{c, map[menuOf][]string{}}, money: &money{chats: c}, queries: &queries{c, map[string]time.Time{}, map[string]Offer{}},
		calls: map[string]int{}, pace: pace{chats: map[int64][]time.Time{}},
	}
}

// Close ends the delivery of updates.
func (f *Fake) Close() {
	f.mu.Lock()
	select {
	case <-f.done:
	default:
		close(f.done)
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// ServeHTTP implements http.Handler.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if path, ok := strings.CutPrefix(r.URL.Path, "/file/bot"+Token+"/"); ok {
		f.serveFile(w, path)
		return
	}
	method, ok := strings.CutPrefix(r.URL.Path, "/bot"+Token+"/")
	if !ok {
		// A token of another form than number:text is not even looked up.
		token, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
		if id, _, two := strings.Cut(token, ":"); !two || strings.Trim(id, "0123456789") != "" {
			fail(w, http.StatusNotFound, "Not Found")
			return
		}
		fail(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	c, err := parseCall(method, r)
	if err != nil {
		// The client has not sent the whole call.
		fail(w, http.StatusBadRequest, "Bad Request: "+err.Error())
		return
	}
	if method == "getUpdates" {
		f.getUpdates(w, r, c)
		return
	}
	fault := None
	if f.o.Fault != nil {
		fault = f.o.Fault(method)
	}
	switch fault {
	case Flood:
		f.flood(w)
		return
	case Broken:
		fail(w, http.StatusInternalServerError, "Internal Server Error")
		return
	case CutBefore:
		panic(http.ErrAbortHandler)
	case Hang:
		f.hang(r)
		return
	case Gateway:
		badGateway(w)
		return
	case None, CutAfter, HangAfter, GatewayAfter:
	}
	result, problem := f.do(c)
	switch fault {
	case CutAfter:
		panic(http.ErrAbortHandler)
	case HangAfter:
		f.hang(r)
		return
	case GatewayAfter:
		badGateway(w)
		return
	default:
	}
	switch {
	case problem == nil:
		answer(w, http.StatusOK, map[string]any{"ok": true, "result": result})
	case problem.status == http.StatusTooManyRequests:
		f.flood(w)
	case problem.movedTo != 0:
		answer(w, problem.status, map[string]any{
			"ok": false, "error_code": problem.status, "description": problem.text,
			"parameters": map[string]any{"migrate_to_chat_id": problem.movedTo},
		})
	default:
		fail(w, problem.status, problem.text)
	}
}

func badGateway(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusBadGateway)
	_, _ = w.Write([]byte("<html><head><title>502 Bad Gateway</title></head></html>"))
}

// hang gives no answer for as long as the client waits.
func (f *place) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-f.done:
	}
}

func (f *place) flood(w http.ResponseWriter) {
	answer(w, http.StatusTooManyRequests, map[string]any{
		"ok": false, "error_code": http.StatusTooManyRequests,
		"description": "Too Many Requests: retry after " + strconv.Itoa(f.o.RetryAfter),
		"parameters":  map[string]any{"retry_after": f.o.RetryAfter},
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, status int, description string) {
	answer(w, status, map[string]any{"ok": false, "error_code": status, "description": description})
}

func (f *chats) serveFile(w http.ResponseWriter, path string) {
	f.mu.Lock()
	data, ok := f.files[path]
	f.mu.Unlock()
	if !ok {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	_, _ = w.Write(data)
}

// changedNow wakes everyone that waits for a change. The caller holds mu.
func (f *place) changedNow() {
	close(f.changed)
	f.changed = make(chan struct{})
}
