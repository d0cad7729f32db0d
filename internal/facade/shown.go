package facade

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// show adds what output nodes show, all of it or nothing.
func (s *Server) show(r *Run, outputs *pyjson.Object) error {
	for node, v := range outputs.All() {
		if err := checkShown(r, node, v); err != nil {
			return fmt.Errorf("node %q: %w", node, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for node := range outputs.All() {
		output := r.outputs.Object(node)
		if output == nil {
			output = &pyjson.Object{}
			r.outputs.Set(node, output)
		}
		for key, v := range outputs.Object(node).All() {
			list, _ := v.(pyjson.Array)
			output.Set(key, append(slices.Clone(output.Array(key)), list...))
		}
	}
	return nil
}

func checkShown(r *Run, node string, v pyjson.Value) error {
	shown, ok := v.(*pyjson.Object)
	switch {
	case r.Class(node) == "":
		return errors.New("the prompt has no such node")
	case !ok:
		return errors.New("must be an object")
	}
	for key, v := range shown.All() {
		list, ok := v.(pyjson.Array)
		if !ok {
			return fmt.Errorf("%s: must be a list", key)
		}
		for _, one := range list {
			if o, ok := one.(*pyjson.Object); ok && o.Has("filename") {
				return fmt.Errorf("%s: names a file that was not uploaded", key)
			}
		}
	}
	return nil
}

// inputsOf returns the texts in a graph that name files which are there, each once.
func (f *files) inputsOf(graph *pyjson.Object) []string {
	var names []string
	for _, v := range graph.All() {
		node, ok := v.(*pyjson.Object)
		if !ok {
			continue
		}
		for _, v := range node.Object("inputs").All() {
			text, ok := v.(pyjson.String)
			if !ok || slices.Contains(names, string(text)) {
				continue
			}
			kind, name := kindOf(string(text))
			if full, ok := place(kind, path.Dir(name), path.Base(name)); ok && f.has(full) {
				names = append(names, string(text))
			}
		}
	}
	return names
}
