package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Dial connects a client inside the process. What it writes is read until it
// closes the connection.
func (e *Engine) Dial(context.Context, string, string) (net.Conn, error) {
	client, server := pipe()
	go newConnection(e, server).serve()
	return client, nil
}

// connection is one client's.
type connection struct {
	engine *Engine
	conn   net.Conn

	// turn guards out, since messages to subscribers come between replies. It is a channel because a
	// write may wait for a reader that is in no hurry, and in virtual time nothing passes for whoever waits
	// for a mutex.
	turn turn
	out  *bufio.Writer

	channels []string // subscribed to
}

// turn is a lock.
type turn chan struct{}

func (t turn) take()  { t <- struct{}{} }
func (t turn) leave() { <-t }

func newConnection(e *Engine, conn net.Conn) *connection {
	return &connection{engine: e, conn: conn, turn: make(turn, 1), out: bufio.NewWriter(conn)}
}

func (c *connection) serve() {
	defer c.conn.Close()
	defer c.engine.hub.leave(c)
	commands := newCommandReader(c.conn)
	for {
		args, err := commands.next()
		if err != nil {
			return
		}
		c.do(args)
		if commands.r.Buffered() == 0 && c.flush() != nil { // the replies of a pipeline together
			return
		}
	}
}

// do does a command and writes what it gives. The lock is not held while the
// engine works: a script that publishes to this connection waits for it.
func (c *connection) do(args []string) {
	switch strings.ToUpper(args[0]) {
	case "SUBSCRIBE":
		for _, channel := range args[1:] {
			c.channels = append(c.channels, channel)
			c.turn.take()
			c.write([]any{"subscribe", channel, int64(len(c.channels))}, nil)
			c.engine.hub.join(c, channel) // its messages come after the confirmation
			c.turn.leave()
		}
	case "UNSUBSCRIBE":
		channels := args[1:]
		if len(channels) == 0 {
			channels = slices.Clone(c.channels)
		}
		for _, channel := range channels {
			c.channels = slices.DeleteFunc(c.channels, func(other string) bool { return other == channel })
			c.engine.hub.part(c, channel)
			c.reply([]any{"unsubscribe", channel, int64(len(c.channels))}, nil)
		}
	case "PING":
		switch {
		case len(c.channels) > 0:
			c.reply([]any{"pong", strings.Join(args[1:], " ")}, nil)
		case len(args) > 1:
			c.reply(args[1], nil)
		default:
			c.reply(status("PONG"), nil)
		}
	case "PUBLISH":
		if len(args) != 3 {
			c.reply(nil, errors.New("ERR wrong number of arguments for 'publish' command"))
			return
		}
		c.reply(c.engine.hub.publish(args[1], args[2]), nil)
	case "PUBSUB":
		if len(args) < 2 || !strings.EqualFold(args[1], "NUMSUB") {
			c.reply(nil, errors.New("ERR unknown subcommand of PUBSUB"))
			return
		}
		c.reply(c.engine.hub.count(args[2:]), nil)
	case "TIME":
		c.reply(timeOf(c.engine.keys.now()), nil)
	case "CLIENT", "SELECT":
		c.reply(ok, nil)
	default:
		if reply, ok, err := c.engine.evaluate(args); ok {
			c.reply(reply, err)
			return
		}
		c.reply(c.engine.do(args))
	}
}

func (c *connection) reply(reply any, err error) {
	c.turn.take()
	defer c.turn.leave()
	c.write(reply, err)
}

func (c *connection) flush() error {
	c.turn.take()
	defer c.turn.leave()
	return c.out.Flush()
}

// write writes one reply. A large string is read from the file here, outside
// the engine's lock. The caller has the turn.
func (c *connection) write(reply any, err error) {
	if err != nil {
		_, _ = fmt.Fprintf(c.out, "-%s\r\n", oneLine(err.Error()))
		return
	}
	switch r := reply.(type) {
	case nil:
		_, _ = c.out.WriteString("$-1\r\n")
	case int64:
		_, _ = c.out.Write(appendHead(nil, ':', int(r)))
	case status:
		_, _ = fmt.Fprintf(c.out, "+%s\r\n", r)
	case string:
		c.bulk(r)
	case datum:
		text, err := r.read()
		if err != nil {
			c.write(nil, err)
			return
		}
		c.bulk(text)
	case []any:
		_, _ = c.out.Write(appendHead(nil, '*', len(r)))
		for _, item := range r {
			c.write(item, nil)
		}
	default:
		c.write(nil, fmt.Errorf("ERR a reply of type %T", reply))
	}
}

func (c *connection) bulk(text string) {
	_, _ = c.out.Write(appendHead(nil, '$', len(text)))
	_, _ = c.out.WriteString(text)
	_, _ = c.out.WriteString("\r\n")
}

func oneLine(text string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(text) }

// hub passes messages to subscribers.
type hub struct {
	mu   sync.Mutex
	subs map[string][]*connection
}

func (h *hub) join(c *connection, channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[string][]*connection{}
	}
	if !slices.Contains(h.subs[channel], c) {
		h.subs[channel] = append(h.subs[channel], c)
	}
}

func (h *hub) part(c *connection, channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(h.subs[channel]), func(other *connection) bool { return other == c })
	if h.subs[channel] = left; len(left) == 0 {
		delete(h.subs, channel)
	}
}

// count gives how many listen to each channel.
func (h *hub) count(channels []string) []any {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]any, 0, 2*len(channels))
	for _, channel := range channels {
		out = append(out, channel, int64(len(h.subs[channel])))
	}
	return out
}

// leave ends all subscriptions of a connection.
func (h *hub) leave(c *connection) {
	for _, channel := range c.channels {
		h.part(c, channel)
	}
}

// publish sends a message and gives how many get it. Writes to a connection
// inside the process never wait.
func (h *hub) publish(channel, payload string) int64 {
	h.mu.Lock()
	to := slices.Clone(h.subs[channel])
	h.mu.Unlock()
	for _, c := range to {
		c.turn.take()
		c.write([]any{"message", channel, payload}, nil)
		_ = c.out.Flush()
		c.turn.leave()
	}
	return int64(len(to))
}

// timeOf is the reply to TIME.
func timeOf(now time.Time) []any {
	return []any{decimalInt(now.Unix()), decimalInt(int64(now.Nanosecond() / 1000))}
}
