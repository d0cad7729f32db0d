// Package rules decides what may run: which node classes and models a prompt may name, and
// how large, long and many its pictures may be. It reads graphs and knows no users.
package rules

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Rules are those of a tenant. A pattern may contain "*" for any text. What is empty forbids
// nothing.
type Rules struct {
	// DenyClasses are patterns of node classes that may not be in a prompt; with AllowClasses,
	// no others may.
	DenyClasses, AllowClasses []string
	// DenyModels and AllowModels are the same for files of models, by path or name, whatever
	// the case of their letters.
	DenyModels, AllowModels []string
	// Max are the largest values by what they bound: see [Bounds].
	Max map[string]float64
}

// Empty reports whether nothing is forbidden.
func (r Rules) Empty() bool {
	return len(r.DenyClasses)+len(r.AllowClasses)+len(r.DenyModels)+len(r.AllowModels)+len(r.Max) == 0
}

// Check returns what a graph may not do, in its order.
func (r Rules) Check(graph pyjson.Value) []catalog.Objection {
	nodes, _ := graph.(*pyjson.Object)
	if nodes == nil || r.Empty() {
		return nil
	}
	var objections []catalog.Objection
	for id := range nodes.All() {
		node := nodes.Object(id)
		class := node.String("class_type")
		if !permits(class, r.DenyClasses, r.AllowClasses, false) {
			objections = append(objections, catalog.Objection{
				Node: id, Kind: catalog.NotValid, Rule: "class_type", Reason: "you may not use nodes of the class " + class,
			})
		}
		for input, value := range node.Object("inputs").All() {
			if o := r.input(nodes, input, value); o.Kind != "" {
				o.Node, o.Input = id, input
				objections = append(objections, o)
			}
		}
	}
	return objections
}

// input says what is wrong with an input; nothing has no kind.
func (r Rules) input(nodes *pyjson.Object, input string, value pyjson.Value) catalog.Objection {
	if bound, ok := boundOf(input); ok {
		if most, bounded := r.Max[bound]; bounded {
			switch n, known := number(nodes, value, 0); {
			case !known:
				return catalog.Objection{
					Kind: catalog.NotAccepted, Rule: "max " + bound,
					Reason: fmt.Sprintf("its value must be a number, or come from a primitive node, because it may be %v at most", most),
				}
			case n > most:
				o := catalog.Objection{
					Kind: catalog.TooLarge, Rule: "max " + bound, Most: most,
					Reason: fmt.Sprintf("%v is more than you may use: %v at most", n, most),
				}
				if !math.IsInf(n, 0) { // for which JSON has no number
					o.Value = pyjson.Number(strconv.FormatFloat(n, 'f', -1, 64))
				}
				return o
			}
		}
	}
	if len(r.DenyModels)+len(r.AllowModels) == 0 {
		return catalog.Objection{}
	}
	for _, name := range models(value, nil) {
		if !permits(name, r.DenyModels, r.AllowModels, true) {
			return catalog.Objection{Kind: catalog.NotOffered, Rule: "model", Value: pyjson.String(name), Reason: "you may not use the model " + name}
		}
	}
	return catalog.Objection{}
}

// permits reports whether a name may be used. With files, the last part of a path counts as
// well as the whole, and the case of letters does not.
func permits(name string, deny, allow []string, files bool) bool {
	names := []string{name}
	if files {
		whole := strings.ToLower(strings.ReplaceAll(name, `\`, "/"))
		names = []string{whole, whole[strings.LastIndex(whole, "/")+1:]}
	}
	matches := func(patterns []string) bool {
		for _, pattern := range patterns {
			if files {
				pattern = strings.ToLower(strings.ReplaceAll(pattern, `\`, "/"))
			}
			for _, n := range names {
				if matches(pattern, n) {
					return true
				}
			}
		}
		return false
	}
	return !matches(deny) && (len(allow) == 0 || matches(allow))
}

// matches reports whether a text has the form of a pattern. It takes time in proportion to
// both lengths at most, whatever a client sends.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(text, first) || len(text) < len(first)+len(last) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

// tags are the words by which texts name models, as A1111 and some nodes read them.
var tags = regexp.MustCompile(`(?i)<(?:lora|lyco|hypernet|lora_block_weight):([^:<>]+)`)

// models adds the files of models that a value names, however deep.
func models(value pyjson.Value, found []string) []string {
	switch v := value.(type) {
	case pyjson.String:
		if text := strings.TrimSpace(string(v)); job.NamesModel(text) {
			return append(found, text)
		}
		for _, tag := range tags.FindAllStringSubmatch(string(v), -1) {
			found = append(found, strings.TrimSpace(tag[1]))
		}
	case pyjson.Array:
		for _, one := range v {
			found = models(one, found)
		}
	case *pyjson.Object:
		for _, one := range v.All() {
			found = models(one, found)
		}
	}
	return found
}
