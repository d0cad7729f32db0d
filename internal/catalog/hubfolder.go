package catalog

import (
	"bytes"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// hubFolder is the folder in an instance's input folder where hubs put files that
// could not keep their name.
const hubFolder = "comfyhub"

// hideHubFolder removes the hubs' own folder and its subfolders from the lists of
// folders that a class offers: a single ComfyUI has no such folders, and their
// names reveal what others work with. It returns the description without them.
func hideHubFolder(className string, o *pyjson.Object, raw []byte) []byte {
	if !bytes.Contains(raw, []byte(hubFolder)) {
		return raw
	}
	changed := false
	for at := range folderInputs {
		if at[0] != className {
			continue
		}
		for _, section := range []string{"required", "optional"} {
			inputs := o.Object("input").Object(section)
			spec := inputs.Array(at[1])
			if len(spec) == 0 {
				continue
			}
			if list, ok := spec[0].(pyjson.Array); ok {
				spec[0] = withoutHubFolder(list)
			} else if len(spec) > 1 {
				if extra, ok := spec[1].(*pyjson.Object); ok && extra.Has("options") {
					extra.Set("options", withoutHubFolder(extra.Array("options")))
				}
			}
			changed = true
		}
	}
	if !changed {
		return raw
	}
	return pyjson.Marshal(o)
}

func withoutHubFolder(folders pyjson.Array) pyjson.Array {
	return slices.DeleteFunc(slices.Clone(folders), func(v pyjson.Value) bool {
		name, ok := v.(pyjson.String)
		return ok && (name == hubFolder || strings.HasPrefix(string(name), hubFolder+"/") || strings.HasPrefix(string(name), hubFolder+`\`))
	})
}

// WithoutHubFolder removes what is in the hub's folder from an instance's refusal
// of a prompt, or from its node_errors: the options that such an answer repeats may
// be the names of somebody else's files.
func WithoutHubFolder(answer []byte) []byte {
	if !bytes.Contains(answer, []byte(hubFolder)) {
		return answer
	}
	v, err := pyjson.Parse(answer)
	if err != nil {
		return answer
	}
	o, _ := v.(*pyjson.Object)
	nodes := o.Object("node_errors")
	if nodes == nil {
		nodes = o
	}
	changed := false
	for id := range nodes.All() {
		for _, v := range nodes.Object(id).Array("errors") {
			if e, ok := v.(*pyjson.Object); ok && hideOptions(e) {
				changed = true
			}
		}
	}
	if !changed {
		return answer
	}
	return pyjson.Marshal(v)
}

// hideOptions removes the hub's folder from the options that an error repeats, in
// its input_config and in its message, and reports whether it was there.
func hideOptions(e *pyjson.Object) bool {
	config := e.Object("extra_info").Array("input_config")
	if len(config) == 0 {
		return false
	}
	list, inSpec := config[0].(pyjson.Array)
	var settings *pyjson.Object
	if !inSpec && len(config) > 1 {
		settings, _ = config[1].(*pyjson.Object)
		list = settings.Array("options")
	}
	kept := withoutHubFolder(list)
	if len(kept) == len(list) {
		return false
	}
	if inSpec {
		config[0] = kept
	} else {
		settings.Set("options", kept)
	}
	if words, _, quoted := strings.Cut(e.String("details"), " not in ["); quoted {
		e.Set("details", pyjson.String(words+" not in "+python.Str(kept)))
	}
	return true
}
