package catalog

import (
	"cmp"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// refuseUnknownFiles refuses an otherwise accepted prompt that would read files of
// an instance which the hub does not have, in the same way as ComfyUI refuses a
// prompt whose file is missing: the files may be somebody else's. It examines
// everything that may name a file, not only what ComfyUI's own loaders check.
func (c *Catalog) refuseUnknownFiles(p Prompt, accepted *Verdict) *Verdict {
	errors := map[string]pyjson.Array{}
	add := func(id, input, complaint string) {
		errors[id] = append(errors[id], fileProblem(input, complaint))
	}
	for _, f := range c.InputFiles(accepted.Graph, accepted.Outputs, p.Known) {
		// A text that merely ends like an annotated name is not a name.
		if (f.Declared || looksLikeFile(pyjson.String(f.Ref.Filename))) && !p.Known(f.Ref) {
			complaint := existenceChecks[[2]string{accepted.Graph.classType(f.Node), f.Input}]
			add(f.Node, f.Input, cmp.Or(complaint, "Invalid file: ")+f.Value)
		}
	}
	needed := accepted.Graph.upstream(accepted.Outputs)
	for id := range accepted.Graph.nodes().All() {
		for name, value := range accepted.Graph.inputs(id).All() {
			_, isLink := linkTarget(value)
			if (needed[id] || len(accepted.Outputs) == 0) && !isLink && folderInputs[[2]string{accepted.Graph.classType(id), name}] {
				add(id, name, "Invalid folder: "+python.Str(value))
			}
		}
	}
	if len(errors) == 0 {
		return accepted
	}
	return refuseFiles(accepted, errors)
}
