// Package state stores what the bridge must not forget: unanswered messages,
// requests, settings, quotas, bans, and which of several processes is the leader.
//
// It is written before work is done. Every change is a Redis script and carries the
// term of its writer: a process that has been deposed without knowing it cannot
// change anything.
package state

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

var (
	// ErrUnavailable means that Redis cannot be used now.
	ErrUnavailable = redis.ErrUnavailable
	// ErrDeposed means that another process leads now.
	ErrDeposed = errors.New("state: another process has taken over")
	// ErrStale means that a record has changed since it was read.
	ErrStale = errors.New("state: the record has changed meanwhile")
	// ErrNotFound means that there is no such thing, or no longer.
	ErrNotFound = errors.New("state: not found")
	// ErrFull means that too much waits to be handled.
	ErrFull = errors.New("state: too many messages of a chat wait")
	// ErrCrowded means that too much waits in all chats together.
	ErrCrowded = errors.New("state: too many messages wait")
)

//go:embed scripts
var scripts embed.FS

// script is a script of this package. It has the library, of which only what it uses is sent.
func script(name string, mode redis.Mode) *redis.Script {
	var parts []string
	for _, file := range []string{"lib", name} {
		text, err := scripts.ReadFile("scripts/" + file + ".lua")
		if err != nil {
			panic(err) // it is part of the program
		}
		parts = append(parts, string(text))
	}
	return redis.NewScript("bridge/"+name, mode, parts...)
}

var (
	admitScript   = script("admit", redis.Durable)
	pendingScript = script("pending", redis.ReadOnly)
	meetScript    = script("meet", redis.Write)
	leaveScript   = script("leave", redis.Durable)
	handledScript = script("handled", redis.Durable)
	leadScript    = script("lead", redis.Write)
	resignScript  = script("resign", redis.Write)
	createScript  = script("create", redis.Durable)
	saveScript    = script("save", redis.Durable)
	finishScript  = script("finish", redis.Durable)
	putScript     = script("put", redis.Durable)
)

// Options tune a Store.
type Options struct {
	// Keep is how long a finished request, and what belongs to it, is remembered.
	// Default: 7 days.
	Keep time.Duration
	// Seen is how long the id of an event is remembered. Telegram repeats an update
	// for a day at most. Default: 48 h.
	Seen time.Duration
	// Lease is how long a process leads without renewing. Default: 10 s.
	Lease time.Duration
	// PerChat and Inbox bound the events that wait to be handled, in a lane and in all.
	// Default: 50 and 10000.
	PerChat, Inbox int
}

// Store is the bridge's state, safe for concurrent use.
type Store struct {
	core
	Inbox      Inbox
	Chats      Chats
	Requests   Requests
	People     People
	Usage      Usage
	Payments   Payments
	Broadcasts Broadcasts
}

// core is what all parts of the state share.
type core struct {
	db   *redis.DB
	o    Options
	term *termOf
}

// The parts of the state.
type (
	// Inbox has the events that wait to be handled.
	Inbox struct{ core }
	// Chats are those in which somebody has written.
	Chats struct{ core }
	// Requests are kept from the message to the end, and for a while after.
	Requests struct{ core }
	// People is what belongs to a user: what waits for a decision, and favourites.
	People struct{ core }
	// Usage counts what is used up, by whom and when.
	Usage struct{ core }
	// Payments are kept until long after they are settled.
	Payments struct{ core }
	// Broadcasts are messages to all chats.
	Broadcasts struct{ core }
)

// Place says where the state is stored.
type Place struct {
	// URL is "embedded", or that of a Redis.
	URL string
	// Dir is the folder of the embedded one.
	Dir string
	// Prefix begins every key.
	Prefix string
	// Logger receives what an operator should know; default: nothing is logged.
	Logger *slog.Logger
	// Dial connects to the Redis of a URL. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Open returns a store and its connection. It does not wait for a Redis that is
// unavailable; an embedded one is started. Close it.
func Open(ctx context.Context, at Place, o Options) (*Store, error) {
	db, err := redis.Open(ctx, redis.Options{URL: at.URL, Dir: at.Dir, Prefix: at.Prefix, Logger: at.Logger, Dial: at.Dial})
	if err != nil {
		return nil, err
	}
	return New(db, o), nil
}

// Close ends the connection.
func (s *Store) Close() error { return s.db.Close() }

// New returns a store on a connection.
func New(db *redis.DB, o Options) *Store {
	o.Keep = cmp.Or(o.Keep, 7*24*time.Hour)
	o.Seen = cmp.Or(o.Seen, 48*time.Hour)
	o.Lease = cmp.Or(o.Lease, 10*time.Second)
	o.PerChat = cmp.Or(o.PerChat, 50)
	o.Inbox = cmp.Or(o.Inbox, 10_000)
	c := core{db, o, &termOf{}}
	return &Store{c, Inbox{c}, Chats{c}, Requests{c}, People{c}, Usage{c}, Payments{c}, Broadcasts{c}}
}

// Ping checks whether the state can be used.
func (s *Store) Ping(ctx context.Context) error { return s.db.Ping(ctx) }

// run runs a script and turns its first word into an error.
func (s *core) run(ctx context.Context, script *redis.Script, args ...any) ([]string, error) {
	reply, err := s.db.Run(ctx, script, args...)
	if err != nil {
		return nil, err
	}
	if len(reply) == 0 {
		return nil, fmt.Errorf("script %s: empty reply", script.Name())
	}
	switch reply[0] {
	case "deposed":
		return nil, ErrDeposed
	case "stale":
		return nil, ErrStale
	case "absent":
		return nil, ErrNotFound
	case "full":
		return nil, ErrFull
	case "crowded":
		return nil, ErrCrowded
	}
	return reply, nil
}

// Put stores a value under a kind and a name, for a time; 0 means for ever. A nil
// value deletes it.
func (s *Store) Put(ctx context.Context, kind, name string, value any, keep time.Duration) error {
	doc := []byte{}
	if value != nil {
		var err error
		if doc, err = json.Marshal(value); err != nil {
			return err
		}
	}
	_, err := s.run(ctx, putScript, kind, name, doc, keep.Milliseconds())
	return err
}

// get reads a value; ErrNotFound if there is none.
func (s *core) get(ctx context.Context, kind, name string, value any) error {
	doc, err := s.db.Client().Get(ctx, s.db.Key("v", kind, name)).Bytes()
	if errors.Is(err, redis.Nil) {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(doc, value)
}

// Get reads a value; ErrNotFound if there is none.
func (s *Store) Get(ctx context.Context, kind, name string, value any) error {
	return s.get(ctx, kind, name, value)
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
