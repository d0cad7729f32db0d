package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ErrNoSuchPlace means that an [Edit] names a place that the text does not have.
var ErrNoSuchPlace = errors.New("catalog: no such place in the graph")

// Path leads from the root of a JSON text to a value: keys of objects and decimal
// indices of arrays, such as {"3", "inputs", "ckpt_name"}.
type Path []string

// Edit replaces the value at a place.
type Edit struct {
	Path  Path
	Value pyjson.Value
	// Add appends a member to the object that contains Path's last step; the object
	// must not have a member of that key yet.
	Add bool
}

// Splice returns a copy of raw in which the edited literals are replaced and every
// other byte is unchanged. If an object repeats a key, the last member is meant, as
// in Python. raw must be valid JSON. No edit may lie inside another.
func Splice(raw []byte, edits []Edit) ([]byte, error) {
	if len(edits) == 0 {
		return raw, nil
	}
	root := &place{}
	for _, e := range edits {
		root.plan(e)
	}
	s := pyjson.Scanner{Data: raw}
	whole, ok := s.Value()
	if !ok {
		return nil, errMalformed
	}
	var cuts []pyjson.Edit
	if err := root.locate(raw, whole, &cuts); err != nil {
		return nil, err
	}
	slices.SortFunc(cuts, func(a, b pyjson.Edit) int { return cmp.Compare(a.From, b.From) })
	for i, c := range cuts[1:] {
		if c.From < cuts[i].To {
			return nil, fmt.Errorf("%w: one edit lies inside another", ErrNoSuchPlace)
		}
	}
	return pyjson.Splice(raw, cuts), nil
}

// place is a node in the tree of edits. All edits are found in one pass: graphs
// have thousands of literals, and searching for each from the start would take
// quadratic time.
type place struct {
	children map[string]*place
	edit     *Edit
	added    []Edit
}

func (p *place) plan(e Edit) {
	steps := e.Path
	if e.Add {
		steps = steps[:len(steps)-1]
	}
	for _, step := range steps {
		child := p.children[step]
		if child == nil {
			child = &place{}
			if p.children == nil {
				p.children = map[string]*place{}
			}
			p.children[step] = child
		}
		p = child
	}
	if e.Add {
		p.added = append(p.added, e)
		return
	}
	p.edit = &e
}

// locate finds the cuts for this place, whose value is at where.
func (p *place) locate(raw []byte, where pyjson.Span, cuts *[]pyjson.Edit) error {
	if p.edit != nil {
		*cuts = append(*cuts, pyjson.Edit{Span: where, With: pyjson.Marshal(p.edit.Value)})
	}
	if len(p.children) == 0 && len(p.added) == 0 {
		return nil
	}
	found := make(map[string]pyjson.Span, len(p.children))
	s := pyjson.Scanner{Data: raw[:where.To], At: where.From}
	keep := func(step string) bool {
		value, ok := s.Value()
		if _, wanted := p.children[step]; wanted {
			found[step] = value
		}
		return ok
	}
	members, ok := 0, false
	switch c := s.Peek(); {
	case c == '{':
		ok = s.Object(func(key string) bool {
			members++
			return keep(key)
		})
	case c == '[' && len(p.added) == 0:
		ok = s.Array(func(i int) bool { return keep(strconv.Itoa(i)) })
	default:
		return fmt.Errorf("%w: the value has no members", ErrNoSuchPlace)
	}
	if !ok {
		return fmt.Errorf("%w at offset %d", errMalformed, s.At)
	}
	if len(p.added) > 0 {
		*cuts = append(*cuts, p.insertion(where, members))
	}
	for step, child := range p.children {
		value, ok := found[step]
		if !ok {
			return fmt.Errorf("%w: no %q", ErrNoSuchPlace, step)
		}
		if err := child.locate(raw, value, cuts); err != nil {
			return err
		}
	}
	return nil
}

// insertion inserts the added members before the closing brace of an object.
func (p *place) insertion(object pyjson.Span, members int) pyjson.Edit {
	var text []byte
	for i, e := range p.added {
		if members+i > 0 {
			text = append(text, ", "...)
		}
		text = pyjson.AppendString(text, e.Path[len(e.Path)-1])
		text = append(text, ": "...)
		text = pyjson.Append(text, e.Value)
	}
	return pyjson.Edit{Span: pyjson.Span{From: object.To - 1, To: object.To - 1}, With: text}
}
