package catalog

import (
	"encoding/hex"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Question is a check that instances may or may not make: a class of a custom node
// pack can have a validate function instead, and does not say so.
type Question struct {
	// Class and Input are what is checked.
	Class, Input string
	// Source is the class at the other end of a link, and Type the type it
	// provides. Both are empty for the check of a value. They are part of the
	// question because packs use types with their own comparison.
	Source, Type string
}

// Lesson names this instance's answer to a question: once it has refused a prompt
// because of that check, it makes the check as long as its process lives and
// describes the classes with the same bytes. For a class of ComfyUI's own the lesson names
// no files and holds for all instances of one version, see [OfComfyUI]. ok is false if
// nothing can be learnt: the class does not exist, or is replaced by another.
func (i *Info) Lesson(q Question) (lesson string, ok bool) {
	c, known := i.plain(q.Class)
	if !known {
		return "", false
	}
	if c.core && q.Source == "" {
		return ofComfyUI + c.name + " " + c.signature.short() + " " + q.Input, true
	}
	lesson = hex.EncodeToString(c.sum[:16]) + " " + q.Input
	if q.Source == "" {
		return lesson, true
	}
	source, known := i.plain(q.Source)
	if !known {
		return "", false
	}
	return lesson + " " + hex.EncodeToString(source.sum[:16]) + " " + q.Type, true
}

// ofComfyUI begins the lessons about ComfyUI's own classes.
const ofComfyUI = "ComfyUI "

// OfComfyUI reports whether a lesson is about ComfyUI's own code rather than an instance's.
func OfComfyUI(lesson string) bool { return strings.HasPrefix(lesson, ofComfyUI) }

// plain returns a class that the instance runs under its own name.
func (i *Info) plain(name string) (*class, bool) {
	c, known := i.classes[name]
	if _, replaced := i.replaces[name]; replaced {
		return nil, false
	}
	return c, known
}

// maxLessons bounds what is learnt from one refusal.
const maxLessons = 100

// Lessons returns what the instance's refusal of a graph teaches. ComfyUI skips its
// checks of bounds and options for an input that the class's validate function
// takes, and all checks of link types for a class whose function takes them,
// whatever the value is. One refusal because of such a check therefore proves that
// it is made.
func (i *Info) Lessons(graph, nodeErrors []byte) []string {
	v, err := pyjson.Parse(nodeErrors)
	if err != nil {
		return nil
	}
	nodes, _ := v.(*pyjson.Object)
	g, err := ParseGraph(graph)
	if err != nil {
		return nil
	}
	var lessons []string
	for id := range nodes.All() {
		className := nodes.Object(id).String("class_type")
		c, known := i.plain(className)
		if !known || c.core && !c.mayList() || g.classType(id) != className {
			continue
		}
		for _, v := range nodes.Object(id).Array("errors") {
			e, _ := v.(*pyjson.Object)
			q, ok := questionOf(e, g)
			if !ok || len(lessons) >= maxLessons || c.core && e.String("type") != ValueNotInList {
				continue // the hub makes the other checks of ComfyUI's own classes itself
			}
			q.Class = className
			if lesson, ok := i.Lesson(q); ok {
				lessons = append(lessons, lesson)
			}
		}
	}
	return lessons
}

// questionOf returns the question that an error answers.
func questionOf(e *pyjson.Object, g *Graph) (Question, bool) {
	info := e.Object("extra_info")
	q := Question{Input: info.String("input_name")}
	switch e.String("type") {
	case "value_smaller_than_min", "value_bigger_than_max", ValueNotInList:
		return q, q.Input != ""
	case "return_type_mismatch":
		link := info.Array("linked_node")
		if len(link) != 2 {
			return q, false
		}
		from, ok := link[0].(pyjson.String)
		q.Source, q.Type = g.classType(string(from)), info.String("received_type")
		return q, ok && q.Input != "" && q.Source != "" && q.Type != ""
	}
	return q, false
}
