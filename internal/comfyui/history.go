package comfyui

import (
	"context"
	"fmt"
	"net/url"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// History fetches the record of a prompt as raw JSON. It is not found while
// the prompt waits or runs, after a restart of the server, and when unknown.
func (c *Client) History(ctx context.Context, id string) (entry []byte, found bool, err error) {
	data, err := c.get(ctx, "/history/"+url.PathEscape(id), nil)
	if err != nil {
		return nil, false, err
	}
	ok := members(data, func(key string, value []byte) {
		if key == id {
			entry, found = value, true
		}
	})
	if !ok {
		return nil, false, fmt.Errorf("/history: %w", ErrMalformed)
	}
	return entry, found, nil
}

// Entry is a history entry as far as a hub has to understand it; its raw parts
// are parts of the entry.
type Entry struct {
	// Graph and Extra are the prompt's graph and extra_data, raw.
	Graph, Extra []byte
	// Outputs are the UI objects by node id, raw.
	Outputs []byte
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
// reports false for what is no JSON object.
func ParseEntry(entry []byte) (Entry, bool) {
	var e Entry
	ok := members(entry, func(key string, value []byte) {
		switch key {
		case "prompt":
			s := scanner{data: value}
			s.array(func(i int) bool {
				place, ok := s.value()
				switch {
				case ok && i == 2:
					e.Graph = place.of(value)
				case ok && i == 3:
					e.Extra = place.of(value)
					e.Mark = ParseMark(e.Extra)
				}
				return ok
			})
		case "outputs":
			e.Outputs = value
		case "status":
			e.StatusRaw = value
			e.parseStatus(value)
		}
	})
	return e, ok
}

func (e *Entry) parseStatus(status []byte) {
	members(status, func(key string, value []byte) {
		switch key {
		case "status_str":
			e.Status = text(value)
		case "completed":
			e.Completed = string(value) == "true"
		case "messages":
			e.parseMessages(value)
		}
	})
}

func (e *Entry) parseMessages(list []byte) {
	s := scanner{data: list}
	s.array(func(int) bool {
		place, ok := s.value()
		if !ok {
			return false
		}
		var m EntryMessage
		pair := scanner{data: place.of(list)}
		pair.array(func(i int) bool {
			place, ok := pair.value()
			switch {
			case ok && i == 0:
				m.Type = text(place.of(pair.data))
			case ok && i == 1:
				m.Data = place.of(pair.data)
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
	// Outputs replaces the outputs, raw JSON.
	Outputs []byte
}

// RewriteEntry applies an edit to a history entry: the id in prompt[1] and in
// the messages, and the parts that are given. All other bytes stay. Without
// Extra the member comfyhub of extra_data, which is nobody's business, is
// removed. An entry that cannot be read is returned as it is.
func RewriteEntry(entry []byte, e EntryEdit) []byte {
	r := entryRewriter{rewriter{scanner: scanner{data: entry}, from: e.From, to: quoted(e.To)}, e}
	ok := r.object(func(key string) bool {
		switch {
		case key == "prompt" && r.peek() == '[':
			return r.array(r.promptPart)
		case key == "status" && r.peek() == '{':
			return r.object(func(key string) bool {
				if key == "messages" && r.peek() == '[' {
					return r.array(func(int) bool { return r.message() })
				}
				return r.skip()
			})
		case key == "outputs":
			return r.replace(e.Outputs)
		}
		return r.skip()
	})
	return r.result(ok)
}

type entryRewriter struct {
	rewriter
	edit EntryEdit
}

// replace steps over a value; nil keeps it.
func (r *entryRewriter) replace(with []byte) bool {
	place, ok := r.value()
	if ok && with != nil {
		r.edits = append(r.edits, edit{place, with})
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
	case 3:
		r.peek()
		start := r.at
		place, ok := r.value()
		if !ok {
			return false
		}
		with := r.edit.Extra
		if with == nil {
			with = WithoutMember(place.of(r.data), "comfyhub")
		}
		r.edits = append(r.edits, edit{span{start, place.to}, with})
		return true
	}
	return r.skip()
}

// message steps over one of the [type, data] pairs.
func (r *entryRewriter) message() bool {
	if r.peek() != '[' {
		return r.skip()
	}
	return r.array(func(i int) bool {
		if i == 1 {
			return r.idOfObject()
		}
		return r.skip()
	})
}

// WithoutMember returns a raw JSON object without one member. All other bytes
// stay, but for the comma. What is no object is returned as it is.
func WithoutMember(object []byte, name string) []byte {
	s := scanner{data: object}
	var (
		edits []edit
		first = true // no member before this one stays
		start = 1    // where the member begins, the comma before it included
	)
	if s.peek() == '{' {
		start = s.at + 1
	}
	ok := s.object(func(key string) bool {
		if !s.skip() {
			return false
		}
		end := s.at
		switch {
		case key != name:
			first = false
		case !first:
			edits = append(edits, edit{span: span{start, end}})
		default: // take the comma and blanks behind it instead
			if s.peek() == ',' {
				behind := scanner{data: object, at: s.at + 1}
				behind.peek()
				edits = append(edits, edit{span: span{start, behind.at}})
				end = behind.at
			} else {
				edits = append(edits, edit{span: span{start, end}})
			}
		}
		start = max(end, s.at)
		return true
	})
	if !ok {
		return object
	}
	return splice(object, edits)
}

// EntryParts is what a history entry is made of, for one that no instance wrote.
type EntryParts struct {
	// Number is a JSON literal.
	Number string
	ID     string
	// Graph and Extra are raw JSON.
	Graph, Extra []byte
	// Outputs are the ids of the output nodes that were to execute.
	Outputs []string
	// Success is true for a run that went well.
	Success bool
	// Messages are those of the run, in order.
	Messages []EntryMessage
}

// NewEntry writes a history entry without results, in Python's style.
func NewEntry(p EntryParts) []byte {
	out := append([]byte(`{"prompt": [`), p.Number...)
	out = append(out, ", "...)
	out = pyjson.AppendString(out, p.ID)
	out = append(out, ", "...)
	out = append(out, p.Graph...)
	out = append(out, ", "...)
	out = append(out, p.Extra...)
	out = append(out, ", "...)
	out = pyjson.Append(out, pyjson.Strings(p.Outputs))
	out = append(out, `], "outputs": {}, "status": {"status_str": `...)
	if p.Success {
		out = append(out, `"success", "completed": true, "messages": [`...)
	} else {
		out = append(out, `"error", "completed": false, "messages": [`...)
	}
	for i, m := range p.Messages {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(out, '[')
		out = pyjson.AppendString(out, m.Type)
		out = append(out, ", "...)
		out = append(out, m.Data...)
		out = append(out, ']')
	}
	return append(out, `]}, "meta": {}}`...)
}
