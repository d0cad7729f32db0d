package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
)

// The kinds of a [Difference].
const (
	// DifferentPackage is a package of custom nodes.
	DifferentPackage = "package"
	// DifferentClass is a single node class, of a package that the instances without it
	// have as well, or of ComfyUI itself: their versions differ.
	DifferentClass = "class"
	// DifferentFile is a model, or another file that a node offers.
	DifferentFile = "file"
)

// Difference is something that some instances of a fleet have and others have not.
type Difference struct {
	Kind string
	// Name is that of the package, the class or the file.
	Name string
	// Of is the package of a class, or the CLASS.INPUT that offers a file; empty for a
	// package.
	Of string
	// Have and Lack are the names of instances, sorted. An instance without the class that
	// offers a file is in neither.
	Have, Lack []string
}

// ownPackage is what the classes are said to be of that come with ComfyUI.
const ownPackage = "ComfyUI"

// Differences compares what instances can run, by the name of each: packages of custom
// nodes first, then classes, then files, each kind sorted by name.
func Differences(infos map[string]*Info) []Difference {
	// Few instances differ from all others: each info is looked at once.
	instances := map[digest][]string{}
	distinct := map[digest]*Info{}
	for name, info := range infos {
		instances[info.sum] = append(instances[info.sum], name)
		distinct[info.sum] = info
	}
	if len(distinct) < 2 {
		return nil
	}
	c := comparison{instances: instances, distinct: distinct}
	list := slices.Concat(c.classes(), c.files())
	slices.SortFunc(list, func(a, b Difference) int {
		order := []string{DifferentPackage, DifferentClass, DifferentFile}
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)),
			strings.Compare(a.Name, b.Name), strings.Compare(a.Of, b.Of),
		)
	})
	return list
}

// comparison is what is compared: the distinct infos, and whose they are.
type comparison struct {
	instances map[digest][]string
	distinct  map[digest]*Info
}

// difference is one if some of the infos have it and others lack it.
func (c comparison) difference(kind, name, of string, has func(*Info) (has, counts bool)) (Difference, bool) {
	d := Difference{Kind: kind, Name: name, Of: of}
	for sum, info := range c.distinct {
		switch has, counts := has(info); {
		case !counts:
		case has:
			d.Have = append(d.Have, c.instances[sum]...)
		default:
			d.Lack = append(d.Lack, c.instances[sum]...)
		}
	}
	slices.Sort(d.Have)
	slices.Sort(d.Lack)
	return d, len(d.Have) > 0 && len(d.Lack) > 0
}

// classes compares packages of custom nodes, and the classes of those that all have.
func (c comparison) classes() []Difference {
	packages := map[string]map[string]bool{} // the classes of each
	for _, info := range c.distinct {
		for name, class := range info.classes {
			of := class.packageName()
			if packages[of] == nil {
				packages[of] = map[string]bool{}
			}
			packages[of][name] = true
		}
	}
	var list []Difference
	for of, classes := range packages {
		has := func(info *Info) bool {
			for name := range classes {
				if own, ok := info.classes[name]; ok && own.packageName() == of {
					return true
				}
			}
			return false
		}
		if of != ownPackage {
			d, differs := c.difference(DifferentPackage, of, "", func(info *Info) (bool, bool) { return has(info), true })
			if differs {
				list = append(list, d)
			}
		}
		for name := range classes {
			d, differs := c.difference(DifferentClass, name, of, func(info *Info) (bool, bool) {
				_, ok := info.classes[name]
				return ok, has(info)
			})
			if differs {
				list = append(list, d)
			}
		}
	}
	return list
}

// files compares the files that classes offer. One that several inputs offer is named once,
// with the first of them.
func (c comparison) files() []Difference {
	type place struct{ class, input string }
	places := map[string]place{}
	for _, info := range c.distinct {
		for name, class := range info.classes {
			for _, in := range class.inputs {
				if in.file || in.options == nil {
					continue // inputs are brought where they are needed
				}
				for _, file := range in.options.keys() {
					at, known := places[file]
					here := place{name, in.name}
					if job.NamesModel(file) && (!known || here.class+"."+here.input < at.class+"."+at.input) {
						places[file] = here
					}
				}
			}
		}
	}
	var list []Difference
	for file, at := range places {
		d, differs := c.difference(DifferentFile, file, at.class+"."+at.input, func(info *Info) (bool, bool) {
			class, ok := info.classes[at.class]
			return ok && class.find(at.input).offered().hasKey(file), ok
		})
		if differs {
			list = append(list, d)
		}
	}
	return list
}
