package catalog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ErrNoSuchPlace says that an [Edit] names a place that the text does not have.
var ErrNoSuchPlace = errors.New("catalog: no such place in the graph")

// Path leads from the root of a JSON text to a value: keys of objects and
// decimal indices of arrays, such as {"3", "inputs", "ckpt_name"}.
type Path []string

// Edit puts a new value at a place.
type Edit struct {
	Path  Path
	Value pyjson.Value
	// Add appends a member to the object that the path without its last step
	// leads to; there must not be one of that key yet.
	Add bool
}

// Splice returns a copy of raw in which the edited literals are replaced and
// every other byte is as it was. Where an object repeats a key the last member
// is meant, as in Python. raw must be valid JSON. No edit may lie inside
// another.
func Splice(raw []byte, edits []Edit) ([]byte, error) {
	if len(edits) == 0 {
		return raw, nil
	}
	root := &place{}
	for _, e := range edits {
		root.plan(e)
	}
	var cuts []cut
	s := &scanner{data: raw}
	whole, err := s.value()
	if err != nil {
		return nil, err
	}
	if err := root.locate(raw, whole, &cuts); err != nil {
		return nil, err
	}
	slices.SortFunc(cuts, func(a, b cut) int { return cmp.Compare(a.from, b.from) })
	var out bytes.Buffer
	out.Grow(len(raw) + 32*len(cuts))
	at := 0
	for _, c := range cuts {
		if c.from < at {
			return nil, fmt.Errorf("%w: one edit lies inside another", ErrNoSuchPlace)
		}
		out.Write(raw[at:c.from])
		out.Write(c.text)
		at = c.to
	}
	out.Write(raw[at:])
	return out.Bytes(), nil
}

// cut is a range of the text and what comes in its place.
type cut struct {
	span
	text []byte
}

// place is a node of the tree of edits. All edits are found in one walk:
// graphs have thousands of literals, and looking for each from the start would
// cost the square of that.
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

// locate finds the cuts for this place, whose value stands at where.
func (p *place) locate(raw []byte, where span, cuts *[]cut) error {
	if p.edit != nil {
		*cuts = append(*cuts, cut{where, pyjson.Marshal(p.edit.Value)})
	}
	if len(p.children) == 0 && len(p.added) == 0 {
		return nil
	}
	found := make(map[string]span, len(p.children))
	keep := func(step string, value span) {
		if _, wanted := p.children[step]; wanted {
			found[step] = value
		}
	}
	s := &scanner{data: raw[:where.to], at: where.from}
	var err error
	members := 0
	switch {
	case where.from < where.to && raw[where.from] == '{':
		err = s.members(func(key string, value span) error {
			members++
			keep(key, value)
			return nil
		})
	case where.from < where.to && raw[where.from] == '[' && len(p.added) == 0:
		err = s.items(func(i int, value span) error { keep(strconv.Itoa(i), value); return nil })
	default:
		return fmt.Errorf("%w: the value has no members", ErrNoSuchPlace)
	}
	if err != nil {
		return err
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

// insertion puts the added members before the closing brace of an object.
func (p *place) insertion(object span, members int) cut {
	var text []byte
	for i, e := range p.added {
		if members+i > 0 {
			text = append(text, ", "...)
		}
		text = pyjson.AppendString(text, e.Path[len(e.Path)-1])
		text = append(text, ": "...)
		text = pyjson.Append(text, e.Value)
	}
	return cut{span{object.to - 1, object.to - 1}, text}
}
