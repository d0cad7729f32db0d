package catalog

import (
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// InputFile is a file that a graph names.
type InputFile struct {
	Node, Input string
	// Path leads from the root of the graph to the literal, for [Graph.Splice].
	Path  Path
	Value string
	Ref   job.FileRef
	// Declared means that the input is for files; otherwise its text only looks
	// like the name of one.
	Declared bool
	// Listed means that some instance lists the file itself: if the hub does not
	// have it, [Requirements] ensures that such an instance gets the job.
	Listed bool
}

// Rename returns the edit that renames the file in the graph.
func (f InputFile) Rename(name string) Edit {
	return Edit{Path: f.Path, Value: pyjson.String(name)}
}

// InputFiles finds the files that running the outputs of a graph reads. They are
// strings, including strings inside objects and wrapped lists, that
//
//   - belong to an input whose widget uploads files or whose type consists of
//     files, or
//   - end with an annotation such as " [output]", or
//   - name a file that known has, if they look like a file name.
//
// No outputs means all nodes. known is as in [Prompt]; if nil, the last rule does
// not apply. A file need not exist, and its name may lead out of its folder.
func (c *Catalog) InputFiles(g *Graph, outputs []string, known func(job.FileRef) bool) []InputFile {
	var files []InputFile
	needed := g.upstream(outputs)
	for id := range g.nodes().All() {
		if len(outputs) > 0 && !needed[id] {
			continue
		}
		class := g.classType(id)
		e := c.entry(class)
		for name, value := range g.inputs(id).All() {
			if _, isLink := value.(pyjson.Array); isLink {
				continue
			}
			in := e.find(name)
			eachText(Path{id, "inputs", name}, value, 0, func(path Path, s string) {
				if s == "" || s == "none" {
					return // the value of widgets when no file is chosen
				}
				ref := parseFileRef(s)
				declared := in != nil && in.file || fileInput(class, name)
				if declared || annotated(s) || known != nil && plausibleFile(s) && known(ref) {
					files = append(files, InputFile{
						Node: id, Input: name, Path: slices.Clone(path), Value: s, Ref: ref,
						Declared: declared, Listed: in.offered().has(pyjson.String(s)),
					})
				}
			})
		}
	}
	return files
}

// find returns the input that a key belongs to, from the first variant that has it.
func (e *entry) find(key string) *input {
	if e == nil {
		return nil
	}
	for _, v := range e.variants {
		if in := v.class.find(key); in != nil {
			return in
		}
	}
	return nil
}

// eachText calls visit for each string in a value. path is only valid during
// the call.
func eachText(path Path, v pyjson.Value, depth int, visit func(Path, string)) {
	if depth > pyjson.MaxDepth {
		return
	}
	switch v := v.(type) {
	case pyjson.String:
		visit(path, string(v))
	case pyjson.Array:
		for i, item := range v {
			eachText(append(path, strconv.Itoa(i)), item, depth+1, visit)
		}
	case *pyjson.Object:
		for key, item := range v.All() {
			eachText(append(path, key), item, depth+1, visit)
		}
	}
}
