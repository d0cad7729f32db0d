package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// Requirements are what an instance must have to run a job. They depend on the
// graph's structure and on the models it names, not on texts, seeds and sizes, so
// that many jobs share them.
type Requirements struct {
	// Classes are the classes of all nodes: ComfyUI refuses a graph with an unknown
	// class anywhere.
	Classes []string
	// Variants restrict classes that instances describe differently.
	Variants []Variant
	// Choices are options that must be offered.
	Choices []Choice
	// Lists are sets of options, all of which must be offered.
	Lists []List
	// Secrets means that a node needs the API key that the prompt carries.
	Secrets bool
	// Part means that the job is a part of another one, see package split.
	Part bool
	// Unchecked means that no class was known when the prompt was accepted: it may have
	// classes that nobody has.
	Unchecked bool
}

// Variant restricts a class to descriptions with one of the signatures.
type Variant struct {
	Class      string
	Signatures []string
}

func (v Variant) allows(c *class) bool {
	return slices.Contains(v.Signatures, c.signature.short())
}

// Choice is one option of a combo, with slashes instead of backslashes.
type Choice struct{ Class, Input, Value string }

// List is a set of options of one combo.
type List struct {
	Class, Input string
	Options      []string
}

func (d digest) short() string { return hex.EncodeToString(d[:8]) }

// maxList is the longest list that [Requirements.Lists] includes in full.
const maxList = 64

// Requirements lists what running the outputs of a graph needs. outputs are those
// of the [Verdict]; none means all nodes. known is as in [Prompt].
//
// These rules apply to the literals of a combo:
//
//   - A file that the hub has is left out: it is pushed to the instance.
//   - A value that no known instance offers is left out: it has passed as
//     unsure, and the instance that gets the job decides.
//   - A value of a list that names files (models, folders) is a Choice.
//   - A value of any other list, such as the names of samplers, is left out if
//     every known instance offers it. Instead, the requirements contain, once
//     per input, the List of all options that every known instance offers. A
//     job's requirements thus do not depend on the sampler it chose, and yet an
//     instance that joins later satisfies them only if it offers whatever was
//     left out. Such lists come from ComfyUI's code: they grow with its
//     versions, and hardly ever shrink.
//   - Otherwise it is a Choice.
func (c *Catalog) Requirements(g *Graph, outputs []string, known func(job.FileRef) bool) Requirements {
	r := Requirements{Unchecked: c.Empty()}
	needed := g.upstream(outputs)
	for id := range g.nodes().All() {
		name := g.classType(id)
		r.Classes = append(r.Classes, name)
		e := c.entry(name)
		if e == nil || len(outputs) > 0 && !needed[id] {
			continue
		}
		inputs := g.inputs(id)
		fits := e.fit(inputs, behaviour{combos: true})
		if len(fits) < len(e.variants) {
			v := Variant{Class: name}
			for _, form := range fits {
				v.Signatures = append(v.Signatures, form.signature.short())
			}
			slices.Sort(v.Signatures)
			r.Variants = append(r.Variants, v)
		}
		for _, in := range fits[0].live(inputs) {
			if in.options == nil {
				continue
			}
			if value, ok := inputs.Get(in.name); ok {
				for _, option := range literals(value) {
					r.add(e, in, option, known)
				}
			}
		}
	}
	r.sort()
	return r
}

// literals returns the options that a value names: itself, or the items of a
// wrapped list. A link names none.
func literals(value pyjson.Value) []pyjson.Value {
	if o, ok := value.(*pyjson.Object); ok {
		inner, ok := o.Get("__value__")
		if !ok {
			return nil
		}
		if list, ok := inner.(pyjson.Array); ok {
			return list
		}
		return []pyjson.Value{inner}
	}
	if _, isLink := value.(pyjson.Array); isLink {
		return nil
	}
	return []pyjson.Value{value}
}

func (r *Requirements) add(e *entry, in *input, value pyjson.Value, known func(job.FileRef) bool) {
	if s, ok := value.(pyjson.String); ok && plausibleFile(string(s)) {
		if known == nil && in.file || known != nil && known(parseFileRef(string(s))) {
			return
		}
	}
	name := e.members[0].class.name
	if in.unlisted(name) {
		return // an instance that lists the value is no better than another
	}
	key := optionKey(value)
	offering := 0
	for _, m := range e.members {
		if m.class.find(in.name).offered().hasKey(key) {
			offering++
		}
	}
	if offering == 0 {
		return
	}
	if offering == len(e.members) && !in.options.files {
		if core := e.core(in.name); len(core) <= maxList {
			r.Lists = append(r.Lists, List{Class: name, Input: in.name, Options: core})
			return
		}
	}
	r.Choices = append(r.Choices, Choice{Class: name, Input: in.name, Value: key})
}

// core returns the options of an input that all known instances offer, sorted.
func (e *entry) core(inputName string) []string {
	if core, ok := e.cores.Load(inputName); ok {
		return core.([]string)
	}
	core := e.members[0].class.find(inputName).offered().keys()
	for _, m := range e.members[1:] {
		offered := m.class.find(inputName).offered()
		core = slices.DeleteFunc(core, func(option string) bool { return !offered.hasKey(option) })
	}
	slices.Sort(core)
	core = slices.Compact(core)
	e.cores.Store(inputName, core)
	return core
}

// sort sorts the requirements into the order on which [Requirements.Encode] and the
// signature rely.
func (r *Requirements) sort() {
	slices.Sort(r.Classes)
	r.Classes = slices.Compact(r.Classes)
	slices.SortFunc(r.Variants, func(a, b Variant) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), slices.Compare(a.Signatures, b.Signatures))
	})
	r.Variants = slices.CompactFunc(r.Variants, func(a, b Variant) bool {
		return a.Class == b.Class && slices.Equal(a.Signatures, b.Signatures)
	})
	slices.SortFunc(r.Choices, func(a, b Choice) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Input, b.Input), cmp.Compare(a.Value, b.Value))
	})
	r.Choices = slices.Compact(r.Choices)
	slices.SortFunc(r.Lists, func(a, b List) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Input, b.Input))
	})
	r.Lists = slices.CompactFunc(r.Lists, func(a, b List) bool { return a.Class == b.Class && a.Input == b.Input })
}

// Signature returns a short name for the requirements: equal requirements have
// equal signatures.
func (r Requirements) Signature() string {
	sum := sha256.Sum256(r.Encode())
	return hex.EncodeToString(sum[:16])
}

// requirementsVersion changes when an older hub could no longer read the encoding. One that
// does not know secretsVersion leaves these jobs to others: it would give their API keys away. So
// does one that does not know partVersion: it would show parts as jobs.
const (
	requirementsVersion = 1
	secretsVersion      = 2
	partVersion         = 3
)

// ErrRequirements means that bytes are not encoded requirements.
var ErrRequirements = errors.New("catalog: not encoded requirements")

// Encode encodes the requirements as JSON; equal requirements produce equal bytes.
func (r Requirements) Encode() []byte {
	version := requirementsVersion
	if r.Secrets {
		version = secretsVersion
	}
	if r.Part {
		version = partVersion
	}
	o := dict("v", pyjson.Int(int64(version)), "classes", pyjson.Strings(r.Classes))
	if len(r.Variants) > 0 {
		var list pyjson.Array
		for _, v := range r.Variants {
			list = append(list, pyjson.Array{pyjson.String(v.Class), pyjson.Strings(v.Signatures)})
		}
		o.Set("variants", list)
	}
	if len(r.Choices) > 0 {
		var list pyjson.Array
		for _, c := range r.Choices {
			list = append(list, pyjson.Strings([]string{c.Class, c.Input, c.Value}))
		}
		o.Set("choices", list)
	}
	if len(r.Lists) > 0 {
		var list pyjson.Array
		for _, l := range r.Lists {
			list = append(list, pyjson.Array{pyjson.String(l.Class), pyjson.String(l.Input), pyjson.Strings(l.Options)})
		}
		o.Set("lists", list)
	}
	if r.Unchecked {
		o.Set("unchecked", pyjson.Bool(true))
	}
	return pyjson.Marshal(o)
}

// DecodeRequirements decodes what [Requirements.Encode] returned. The error is
// [ErrRequirements].
func DecodeRequirements(data []byte) (Requirements, error) {
	v, err := pyjson.Parse(data)
	if err != nil {
		return Requirements{}, fmt.Errorf("%w: %w", ErrRequirements, err)
	}
	o, _ := v.(*pyjson.Object)
	version, _ := o.Get("v")
	secrets := version == pyjson.Value(pyjson.Int(secretsVersion))
	part := version == pyjson.Value(pyjson.Int(partVersion))
	if !secrets && !part && version != pyjson.Value(pyjson.Int(requirementsVersion)) {
		return Requirements{}, fmt.Errorf("%w: version %s", ErrRequirements, python.Repr(version))
	}
	d := &decoder{}
	unchecked, _ := o.Get("unchecked")
	r := Requirements{Classes: d.texts(o.Array("classes")), Secrets: secrets, Part: part, Unchecked: unchecked == pyjson.Bool(true)}
	for _, item := range o.Array("variants") {
		parts := d.parts(item, 2)
		r.Variants = append(r.Variants, Variant{Class: d.text(parts[0]), Signatures: d.list(parts[1])})
	}
	for _, item := range o.Array("choices") {
		parts := d.parts(item, 3)
		r.Choices = append(r.Choices, Choice{Class: d.text(parts[0]), Input: d.text(parts[1]), Value: d.text(parts[2])})
	}
	for _, item := range o.Array("lists") {
		parts := d.parts(item, 3)
		r.Lists = append(r.Lists, List{Class: d.text(parts[0]), Input: d.text(parts[1]), Options: d.list(parts[2])})
	}
	if d.bad {
		return Requirements{}, ErrRequirements
	}
	return r, nil
}

// decoder decodes parts and remembers whether one was invalid.
type decoder struct{ bad bool }

func (d *decoder) parts(v pyjson.Value, n int) pyjson.Array {
	list, _ := v.(pyjson.Array)
	if len(list) != n {
		d.bad = true
		return make(pyjson.Array, n)
	}
	return list
}

func (d *decoder) text(v pyjson.Value) string {
	s, ok := v.(pyjson.String)
	d.bad = d.bad || !ok
	return string(s)
}

func (d *decoder) list(v pyjson.Value) []string {
	list, ok := v.(pyjson.Array)
	d.bad = d.bad || !ok
	return d.texts(list)
}

func (d *decoder) texts(list pyjson.Array) []string {
	texts := make([]string, 0, len(list))
	for _, item := range list {
		texts = append(texts, d.text(item))
	}
	return texts
}
