package split

import (
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// maxDepth bounds how many nodes follow each other: no graph that can be split comes near it.
const maxDepth = 100

// search walks from the outputs of a graph to all that they need.
type search struct {
	nodes *pyjson.Object
	core  func(class string) bool
	// seen are the nodes that were visited, and whether the batch goes through them. open are
	// those that are being visited: one that needs itself ends the search.
	seen, open map[string]bool
	// latent is the id of the empty latent, and readers are the inputs that it is linked to.
	latent  string
	readers []catalog.Path
}

// visit looks at a node and all that it needs. carries says that the batch goes through it. ok is
// false if the graph cannot be split.
func (s *search) visit(id string, depth int) (carries, ok bool) {
	if carries, done := s.seen[id]; done {
		return carries, true
	}
	node := s.nodes.Object(id)
	class, inputs := node.String("class_type"), node.Object("inputs")
	carrier := carrier(class)
	if depth > maxDepth || s.open[id] || inputs == nil || !s.core(class) || !fits(class, inputs) {
		return false, false
	}
	s.open[id] = true
	switch {
	case scaleOf(class) > 0:
		if s.latent != "" && s.latent != id {
			return false, false
		}
		s.latent, carries = id, true
	case carrier == "" && !setsUp(class):
		return false, false
	}
	for name, v := range inputs.All() {
		through, ok := s.input(id, name, v, depth)
		if !ok || through && name != carrier {
			return false, false
		}
		carries = carries || through
	}
	s.seen[id] = carries
	return carries, carries || carrier == ""
}

// input looks at what an input of a node needs.
func (s *search) input(id, name string, v pyjson.Value, depth int) (carries, ok bool) {
	switch v := v.(type) {
	case pyjson.String, pyjson.Number, pyjson.Bool:
		return false, true
	case pyjson.Array:
		source, ok := linkOf(v)
		if !ok {
			return false, false
		}
		carries, ok = s.visit(source, depth+1)
		if ok && source == s.latent {
			s.readers = append(s.readers, catalog.Path{id, "inputs", name})
		}
		return carries, ok
	}
	return false, false
}

// linkOf returns the node that an input is linked to.
func linkOf(v pyjson.Array) (source string, ok bool) {
	if len(v) != 2 {
		return "", false
	}
	id, isText := v[0].(pyjson.String)
	_, isNumber := v[1].(pyjson.Number)
	return string(id), isText && isNumber
}
