package catalog

import (
	"crypto/sha256"
	"fmt"
	"maps"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Patch returns a copy of an info with the classes that a body describes replaced
// by those descriptions. The body is that of GET /object_info/{class}, which costs
// an instance a thousandth of the whole. If the body says nothing new, Patch
// returns the same info and false: the body may be {} for a class that the instance
// does not have.
//
// Only classes that the info has are replaced. Classes larger than maxClass, or
// whose description cannot be parsed, stay as they were.
func (l *Library) Patch(info *Info, body []byte) (*Info, bool, error) {
	fresh := map[string]*class{}
	s := pyjson.Scanner{Data: body}
	ok := s.Object(func(name string) bool {
		value, ok := s.Value()
		if !ok {
			return false
		}
		before, known := info.classes[name]
		if !known || len(value.Of(body)) > maxClass {
			return true
		}
		if c, err := l.class(name, value.Of(body)); err == nil && c.sum != before.sum {
			fresh[name] = c
		}
		return true
	})
	if !ok || !s.End() {
		return nil, false, fmt.Errorf("object_info of a class: %w at offset %d", errMalformed, s.At)
	}
	if len(fresh) == 0 {
		return info, false, nil
	}
	return info.with(fresh), true, nil
}

// with returns a copy of the info with other descriptions of some of its classes.
// Equal copies of equal infos have equal sums, so that instances that share a
// folder of models stay one group.
func (i *Info) with(fresh map[string]*class) *Info {
	changed := *i
	changed.classes = maps.Clone(i.classes)
	h := sha256.New()
	h.Write(i.sum[:])
	for _, name := range i.names {
		if c := fresh[name]; c != nil {
			changed.classes[name] = c
			h.Write(c.sum[:])
		}
	}
	changed.sum = digest(h.Sum(nil))
	return &changed
}
