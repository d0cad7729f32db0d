package comfyui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// History fetches the record of a prompt as raw JSON. It is not found while
// the prompt waits or runs, after a restart of the server, and when unknown. One
// that is larger than any sane one is ErrTooLarge.
func (c *Client) History(ctx context.Context, id string) (entry []byte, found bool, err error) {
	data, err := c.wire.read(ctx, request{method: http.MethodGet, path: "/history/" + url.PathEscape(id), limit: maxHistory})
	if err == nil && tooComplex(data, maxValues) {
		err = ErrTooLarge
	}
	if err != nil {
		return nil, false, err
	}
	ok := pyjson.Members(data, func(key string, value []byte) {
		if key == id {
			entry, found = value, true
		}
	})
	if !ok {
		return nil, false, fmt.Errorf("/history: %w", ErrMalformed)
	}
	return entry, found, nil
}

// HasEnded reports whether there is a record of a prompt, however large.
func (c *Client) HasEnded(ctx context.Context, id string) (bool, error) {
	_, found, err := c.History(ctx, id)
	if errors.Is(err, ErrTooLarge) {
		return true, nil
	}
	return found, err
}

// Entry is a history entry as far as a hub has to understand it; its raw parts
// are parts of the entry.
type Entry struct {
	// Graph and Extra are the prompt's graph and extra_data, raw.
	Graph, Extra []byte
	// Wanted are the ids of the output nodes that were to be executed.
	Wanted []string
	// Outputs are the UI objects by node id, raw.
	Outputs []byte
	// Meta says by node id where the nodes of the outputs come from, raw; nil when it is missing.
	Meta []byte
	// StatusRaw is the member status, raw; nil when it is missing.
	StatusRaw []byte
	// Status is "success" or "error", "" when unknown.
	Status    string
	Completed bool
	// End is the last message of the entry that ends a run: TypeExecutionSuccess,
	// TypeExecutionError, TypeExecutionInterrupted, "" when there is none.
	End string
	// EndData is the raw data of that message.
	EndData []byte
	// Messages are all messages in order.
	Messages []EntryMessage
	// Mark is the hub's mark on the prompt.
	Mark Mark
}

// EntryMessage is one message kept in a history entry.
type EntryMessage struct {
	Type string
	// Data is raw JSON.
	Data []byte
}

// ParseEntry reads a history entry. Missing and odd parts stay empty; it
// reports false for what is not a JSON object.
func ParseEntry(entry []byte) (Entry, bool) {
	var e Entry
	ok := pyjson.Members(entry, func(key string, value []byte) {
		switch key {
		case "prompt":
			s := pyjson.Scanner{Data: value}
			s.Array(func(i int) bool {
				place, ok := s.Value()
				switch {
				case ok && i == 2:
					e.Graph = place.Of(value)
				case ok && i == 3:
					e.Extra = place.Of(value)
					e.Mark = ParseMark(e.Extra)
				case ok && i == 4:
					wanted := pyjson.Scanner{Data: place.Of(value)}
					wanted.Array(func(int) bool {
						node, ok := wanted.Value()
						if ok {
							e.Wanted = append(e.Wanted, pyjson.Unquote(node.Of(wanted.Data)))
						}
						return ok
					})
				}
				return ok
			})
		case "outputs":
			e.Outputs = value
		case "meta":
			e.Meta = value
		case "status":
			e.StatusRaw = value
			e.parseStatus(value)
		}
	})
	return e, ok
}

func (e *Entry) parseStatus(status []byte) {
	pyjson.Members(status, func(key string, value []byte) {
		switch key {
		case "status_str":
			e.Status = pyjson.Unquote(value)
		case "completed":
			e.Completed = string(value) == "true"
		case "messages":
			e.parseMessages(value)
		}
	})
}

func (e *Entry) parseMessages(list []byte) {
	s := pyjson.Scanner{Data: list}
	s.Array(func(int) bool {
		place, ok := s.Value()
		if !ok {
			return false
		}
		var m EntryMessage
		pair := pyjson.Scanner{Data: place.Of(list)}
		pair.Array(func(i int) bool {
			place, ok := pair.Value()
			switch {
			case ok && i == 0:
				m.Type = pyjson.Unquote(place.Of(pair.Data))
			case ok && i == 1:
				m.Data = place.Of(pair.Data)
			}
			return ok
		})
		e.Messages = append(e.Messages, m)
		switch m.Type {
		case TypeExecutionSuccess, TypeExecutionError, TypeExecutionInterrupted:
			e.End, e.EndData = m.Type, m.Data
		}
		return true
	})
}

// EntryEdit says how an instance's history entry differs from what the client
// should see. Zero fields change nothing.
type EntryEdit struct {
	// From and To are the instance's prompt id and the client's.
	From, To string
	// Number is the JSON literal of the queue number.
	Number string
	// Graph and Extra replace the graph and extra_data, both raw JSON.
	Graph, Extra []byte
	// Outputs replaces the outputs, and Meta what is said about their nodes, both raw JSON.
	Outputs, Meta []byte
	// Wanted replaces the ids of the output nodes that were to be executed.
	Wanted []string
}

// RewriteEntry applies an edit to a history entry: the id in prompt[1] and in
// the messages, and the parts that are given. All other bytes stay. Without
// Extra the member comfyhub of extra_data, which is nobody's business, is
// removed. An entry that cannot be read is returned as it is.
func RewriteEntry(entry []byte, e EntryEdit) []byte {
	r := entryRewriter{rewriter{Scanner: pyjson.Scanner{Data: entry}, from: e.From, to: quoted(e.To)}, e}
	ok := r.Object(func(key string) bool {
		switch {
		case key == "prompt" && r.Peek() == '[':
			return r.Array(r.promptPart)
		case key == "status" && r.Peek() == '{':
			return r.Object(func(key string) bool {
				if key == "messages" && r.Peek() == '[' {
					return r.Array(func(int) bool { return r.message() })
				}
				return r.Skip()
			})
		case key == "outputs":
			return r.replace(e.Outputs)
		case key == "meta":
			return r.replace(e.Meta)
		}
		return r.Skip()
	})
	return r.result(ok)
}

// RenumberEntry gives a history entry another queue number, a JSON literal. It
// reads no further than to the number; an entry in which there is none is
// returned as it is.
func RenumberEntry(entry []byte, number string) []byte {
	s := pyjson.Scanner{Data: entry}
	var edits []pyjson.Edit
	s.Object(func(key string) bool {
		if key != "prompt" || s.Peek() != '[' {
			return s.Skip()
		}
		s.Array(func(int) bool {
			if place, ok := s.Value(); ok {
				edits = append(edits, pyjson.Edit{Span: place, With: []byte(number)})
			}
			return false
		})
		return false
	})
	return pyjson.Splice(entry, edits)
}

type entryRewriter struct {
	rewriter
	edit EntryEdit
}

// replace steps over a value; nil keeps it.
func (r *entryRewriter) replace(with []byte) bool {
	place, ok := r.Value()
	if ok && with != nil {
		r.edits = append(r.edits, pyjson.Edit{Span: place, With: with})
	}
	return ok
}

// promptPart steps over one of number, id, graph, extra_data, outputs.
func (r *entryRewriter) promptPart(i int) bool {
	switch i {
	case 0:
		if r.edit.Number != "" {
			return r.replace([]byte(r.edit.Number))
		}
	case 1:
		return r.id()
	case 2:
		return r.replace(r.edit.Graph)
	case 4:
		if r.edit.Wanted != nil {
			return r.replace(pyjson.Marshal(pyjson.Strings(r.edit.Wanted)))
		}
	case 3:
		r.Peek()
		start := r.At
		place, ok := r.Value()
		if !ok {
			return false
		}
		with := r.edit.Extra
		if with == nil {
			with = WithoutMember(place.Of(r.Data), "comfyhub")
		}
		r.edits = append(r.edits, pyjson.Edit{Span: pyjson.Span{From: start, To: place.To}, With: with})
		return true
	}
	return r.Skip()
}

// message steps over one of the [type, data] pairs.
func (r *entryRewriter) message() bool {
	if r.Peek() != '[' {
		return r.Skip()
	}
	return r.Array(func(i int) bool {
		if i == 1 {
			return r.idOfObject()
		}
		return r.Skip()
	})
}

// WithoutMember returns a raw JSON object without one member. All other bytes
// stay, but for the comma. What is no object is returned as it is.
func WithoutMember(object []byte, name string) []byte {
	s := pyjson.Scanner{Data: object}
	var (
		edits []pyjson.Edit
		first = true // no member before this one stays
		start = 1    // where the member begins, the comma before it included
	)
	if s.Peek() == '{' {
		start = s.At + 1
	}
	ok := s.Object(func(key string) bool {
		if !s.Skip() {
			return false
		}
		end := s.At
		switch {
		case key != name:
			first = false
		case !first:
			edits = append(edits, pyjson.Edit{Span: pyjson.Span{From: start, To: end}})
		default: // take the comma and blanks behind it instead
			if s.Peek() == ',' {
				behind := pyjson.Scanner{Data: object, At: s.At + 1}
				behind.Peek()
				edits = append(edits, pyjson.Edit{Span: pyjson.Span{From: start, To: behind.At}})
				end = behind.At
			} else {
				edits = append(edits, pyjson.Edit{Span: pyjson.Span{From: start, To: end}})
			}
		}
		start = max(end, s.At)
		return true
	})
	if !ok {
		return object
	}
	return pyjson.Splice(object, edits)
}
