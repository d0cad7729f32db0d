package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Info is what one instance can do: its /object_info, parsed. It is immutable.
type Info struct {
	sum     digest
	names   []string // in the order of the body
	classes map[string]*class
	skipped []string
	// replaces maps classes that the instance rewrites to their replacements;
	// replacesSum identifies that table.
	replaces    map[string]string
	replacesSum digest
	// secrets means that the instance may have the API keys of prompts.
	secrets bool
	// apiOnly means that the instance takes only what [CallsOnly] accepts.
	apiOnly bool
}

// Hash identifies the body from which the info was parsed.
func (i *Info) Hash() string { return hex.EncodeToString(i.sum[:16]) }

// Profile identifies what an instance can run: those with equal ones satisfy the same
// requirements. It is comparable.
type Profile struct {
	info, replaces digest
	secrets        bool
	apiOnly        bool
}

// Profile returns the instance's profile.
func (i *Info) Profile() Profile { return Profile{i.sum, i.replacesSum, i.secrets, i.apiOnly} }

// Classes returns the number of node classes.
func (i *Info) Classes() int { return len(i.classes) }

// Skipped returns the names of classes whose description could not be parsed.
func (i *Info) Skipped() []string { return i.skipped }

// Has reports whether the instance can run nodes of that class, if necessary by
// replacing it with a newer one.
func (i *Info) Has(className string) bool {
	_, ok := i.class(className)
	return ok
}

// IsOutput reports whether nodes of a class are output nodes, as an instance describes it.
func IsOutput(i *Info, className string) bool {
	c, ok := i.class(className)
	return ok && c.output
}

// Core reports whether the instance runs nodes of that class with ComfyUI's own code: custom nodes
// can take the place of one.
func (i *Info) Core(className string) bool {
	c, ok := i.classes[className]
	return ok && c.core
}

// class returns the class with which a node of that name is run.
func (i *Info) class(name string) (*class, bool) {
	if c, ok := i.classes[name]; ok {
		return c, true
	}
	if newer, ok := i.replaces[name]; ok {
		c, ok := i.classes[newer]
		return c, ok
	}
	return nil, false
}

// WithReplacements returns a copy of the info with the old classes that the
// instance rewrites before it validates: the body of /node_replacements, which
// servers have since 0.14.
func (i *Info) WithReplacements(body []byte) (*Info, error) {
	v, err := pyjson.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("catalog: node replacements: %w", err)
	}
	list, ok := v.(*pyjson.Object)
	if !ok {
		return nil, fmt.Errorf("catalog: node replacements: %w", errMalformed)
	}
	changed := *i
	changed.replacesSum = sha256.Sum256(body)
	changed.replaces = map[string]string{}
	for old := range list.All() {
		for _, item := range list.Array(old) {
			o, _ := item.(*pyjson.Object)
			if newer := o.String("new_node_id"); newer != "" {
				changed.replaces[old] = newer
				break
			}
		}
	}
	if maps.Equal(changed.replaces, i.replaces) {
		return i, nil
	}
	return &changed, nil
}

// ReplacingLike returns a copy of the info that rewrites the same old classes as
// another info of the same process: they only change with its code.
func (i *Info) ReplacingLike(before *Info) *Info {
	changed := *i
	changed.replaces, changed.replacesSum = before.replaces, before.replacesSum
	return &changed
}

// Satisfies returns what the instance lacks of a requirement, in plain words, such
// as "node class Foo" and "LoraLoader.lora_name: a.safetensors". It is empty if the
// instance can run the jobs that have the requirement.
func (i *Info) Satisfies(r Requirements) (missing []string) {
	for _, name := range r.Classes {
		if !i.Has(name) {
			missing = append(missing, "node class "+name)
		}
	}
	for _, v := range r.Variants {
		if c, ok := i.classes[v.Class]; ok && !v.allows(c) {
			missing = append(missing, "another version of node class "+v.Class)
		}
	}
	for _, choice := range r.Choices {
		// A class that is missing or replaced was handled above.
		c, ok := i.classes[choice.Class]
		if ok && !c.find(choice.Input).offered().hasKey(choice.Value) {
			missing = append(missing, choice.Class+"."+choice.Input+": "+choice.Value)
		}
	}
	for _, list := range r.Lists {
		c, ok := i.classes[list.Class]
		if !ok {
			continue
		}
		offered := c.find(list.Input).offered()
		for _, option := range list.Options {
			if !offered.hasKey(option) {
				missing = append(missing, list.Class+"."+list.Input+": "+option)
			}
		}
	}
	if r.Secrets && !i.secrets {
		missing = append(missing, "leave to have the API keys of prompts (secrets_to in the hub's Caddyfile)")
	}
	if i.apiOnly && !CallsOnly(i, r) {
		missing = append(missing, "leave to load models (api_only in the hub's Caddyfile)")
	}
	return missing
}

// offered returns the options of an input; nil for an input that does not exist or
// is not a combo.
func (in *input) offered() *options {
	if in == nil {
		return nil
	}
	return in.options
}

// Spelling returns an option as this instance spells it: Windows instances have
// backslashes in the names of models. ok is false if the class, the input or the
// option does not exist; the value is then not changed.
func (i *Info) Spelling(className, inputName, value string) (own string, ok bool) {
	c, known := i.classes[className]
	if !known {
		return "", false
	}
	if in := c.find(inputName); in != nil {
		return in.spelling(value)
	}
	return "", false
}

// Choices returns the strings that an input offers, in order; none if the class,
// the input or its list is unknown.
func (i *Info) Choices(className, inputName string) []string {
	c, known := i.classes[className]
	if !known {
		return nil
	}
	in := c.find(inputName)
	if in == nil || in.options == nil {
		return nil
	}
	var texts []string
	for _, v := range in.options.list {
		if s, isText := v.(pyjson.String); isText {
			texts = append(texts, string(s))
		}
	}
	return texts
}

func (in *input) spelling(value string) (own string, ok bool) {
	if in.options == nil {
		return "", false
	}
	at, known := in.options.index[optionKey(pyjson.String(value))]
	if !known {
		return "", false
	}
	if slices.Contains(in.options.list, pyjson.Value(pyjson.String(value))) {
		return value, true // both spellings may exist
	}
	s, isText := in.options.list[at].(pyjson.String)
	return string(s), isText
}

// Respell returns the edits that change the options named in a graph to this
// instance's own spelling, for the nodes that the outputs need; no outputs means
// all nodes. Instances compare spellings byte by byte.
func (i *Info) Respell(g *Graph, outputs []string) []Edit {
	var edits []Edit
	needed := g.upstream(outputs)
	for id := range g.nodes().All() {
		c, ok := i.classes[g.classType(id)]
		if !ok || len(outputs) > 0 && !needed[id] {
			continue
		}
		inputs := g.inputs(id)
		for _, in := range c.live(inputs) {
			value, ok := inputs.Get(in.name)
			if _, isLink := value.(pyjson.Array); !ok || isLink || in.options == nil {
				continue
			}
			eachText(Path{id, "inputs", in.name}, value, 0, func(path Path, s string) {
				if own, ok := in.spelling(s); ok && own != s {
					edits = append(edits, Edit{Path: slices.Clone(path), Value: pyjson.String(own)})
				}
			})
		}
	}
	return edits
}
