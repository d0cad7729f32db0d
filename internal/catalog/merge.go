package catalog

import (
	"cmp"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Source is one instance for [Merge].
type Source struct {
	Info *Info
	// Absent means that the instance has left. What it had is still known, so that
	// its jobs wait for it instead of being refused.
	Absent bool
}

// Catalog is what the fleet can do: the infos of many instances combined. It is
// immutable and safe for concurrent use. The nil Catalog is empty.
type Catalog struct {
	names    []string
	entries  map[string]*entry
	replaces map[string]string
	etag     string
	plain    func() []byte
}

// entry is one class of the fleet.
type entry struct {
	// members are the distinct descriptions, the preferred one first.
	members []member
	// variants are the members combined by signature, the preferred one first.
	variants []variant
	// cores caches by input what [entry.core] has found.
	cores sync.Map
}

// member is one description of a class and the number of present instances that
// give it.
type member struct {
	class   *class
	present int
}

// variant is one signature of a class.
type variant struct {
	of []*class
	// class has the options of all of them.
	class   *class
	present int
}

// Merge combines the infos of instances. Put those of the newest ComfyUI first: the
// order decides between equals. previous, which may be nil, is an earlier result
// whose parts are reused, so that a change at one instance costs little.
//
// A class that instances describe with different options only becomes one class
// with all options, those of the preferred description first. Descriptions that
// differ in more than that (inputs, types, bounds, outputs) remain separate
// variants, and a prompt may match any of them. The preferred description is the
// one that the most present instances give.
func Merge(previous *Catalog, sources []Source) *Catalog {
	c := &Catalog{entries: map[string]*entry{}, replaces: map[string]string{}}
	for _, g := range groupSources(sources) {
		for _, name := range g.info.names {
			e := c.entries[name]
			if e == nil {
				e = &entry{}
				c.entries[name] = e
				c.names = append(c.names, name)
			}
			e.join(g.info.classes[name], g.present)
		}
		for old, newer := range g.info.replaces {
			if _, known := c.replaces[old]; !known {
				c.replaces[old] = newer
			}
		}
	}
	for name, e := range c.entries {
		var old *entry
		if previous != nil {
			old = previous.entries[name]
		}
		e.unite(old)
	}
	c.etag = c.makeTag()
	c.plain = sync.OnceValue(c.build)
	return c
}

// group is a set of sources with equal infos.
type group struct {
	info    *Info
	present int
}

// groupSources merges sources with equal infos into groups.
func groupSources(sources []Source) []*group {
	byKey := map[Profile]*group{}
	var groups []*group
	for _, s := range sources {
		if s.Info == nil {
			continue
		}
		k := s.Info.Profile()
		g := byKey[k]
		if g == nil {
			g = &group{info: s.Info}
			byKey[k] = g
			groups = append(groups, g)
		}
		if !s.Absent {
			g.present++
		}
	}
	return groups
}

// join counts a description among the members.
func (e *entry) join(c *class, present int) {
	for i := range e.members {
		if e.members[i].class.sum == c.sum {
			e.members[i].present += present
			return
		}
	}
	e.members = append(e.members, member{c, present})
}

// unite builds the variants, reusing those of old that did not change.
func (e *entry) unite(old *entry) {
	slices.SortStableFunc(e.members, func(a, b member) int { return cmp.Compare(b.present, a.present) })
	for _, m := range e.members {
		i := slices.IndexFunc(e.variants, func(v variant) bool { return v.of[0].signature == m.class.signature })
		if i < 0 {
			e.variants = append(e.variants, variant{of: []*class{m.class}, present: m.present})
			continue
		}
		e.variants[i].of = append(e.variants[i].of, m.class)
		e.variants[i].present += m.present
	}
	slices.SortStableFunc(e.variants, func(a, b variant) int { return cmp.Compare(b.present, a.present) })
	for i := range e.variants {
		v := &e.variants[i]
		if old != nil {
			same := slices.IndexFunc(old.variants, func(o variant) bool { return slices.Equal(o.of, v.of) })
			if same >= 0 {
				v.class = old.variants[same].class
				continue
			}
		}
		v.class = uniteOptions(v.of)
	}
}

// uniteOptions returns the first class with the options of all. If the others offer
// nothing more, it returns that class itself.
func uniteOptions(list []*class) *class {
	base := list[0]
	var united []*input
	change := func(i int, in *input) {
		if united == nil {
			united = slices.Clone(base.inputs)
		}
		united[i] = in
	}
	for i, in := range base.inputs {
		if in.kind == kindDynamicGroup {
			var others []*input
			for _, c := range list[1:] {
				if other := c.find(in.name); other != nil {
					others = append(others, other)
				}
			}
			if group := in.uniteFields(others); group != in {
				change(i, group)
			}
		}
		if in.options == nil {
			continue
		}
		others := make([]*options, 0, len(list)-1)
		for _, c := range list[1:] {
			if other := c.find(in.name); other != nil {
				others = append(others, other.options)
			}
		}
		all := in.options.union(others...)
		if all != in.options {
			change(i, in.withOptions(all))
		}
	}
	if united == nil {
		return base
	}
	merged := *base
	merged.inputs = united
	merged.base = base
	return &merged
}

// withOptions returns a copy of a combo with other options, in the style in which
// it was declared.
func (in *input) withOptions(o *options) *input {
	changed := *in
	changed.options = o
	if in.listStyle {
		changed.spec = o.list
		return &changed
	}
	changed.extra = clone(in.extra)
	changed.extra.Set("options", o.list)
	return &changed
}

// clone returns a copy of an object with the same members.
func clone(o *pyjson.Object) *pyjson.Object {
	c := &pyjson.Object{}
	for key, value := range o.All() {
		c.Set(key, value)
	}
	return c
}

// Empty reports whether no class is known: then only the shape of prompts can be
// checked.
func (c *Catalog) Empty() bool { return c == nil || len(c.entries) == 0 }

// Classes returns the names of all node classes, in the order of the first
// instance that has them.
func (c *Catalog) Classes() []string {
	if c == nil {
		return nil
	}
	return slices.Clone(c.names)
}

// entry returns what is known of a class; nil if it is unknown.
func (c *Catalog) entry(name string) *entry {
	if c == nil {
		return nil
	}
	return c.entries[name]
}

// replaced reports whether some instance rewrites the class to one it knows.
func (c *Catalog) replaced(name string) bool {
	if c == nil {
		return false
	}
	newer, ok := c.replaces[name]
	return ok && c.entries[newer] != nil
}
