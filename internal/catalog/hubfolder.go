package catalog

import (
	"bytes"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// hubFolder is the folder among an instance's inputs into which hubs put what
// could not keep its name.
const hubFolder = "comfyhub"

// hideHubFolder takes the hubs' own folder, and those in it, out of the lists
// of folders that a class offers: one ComfyUI has none of them, and their names
// tell what others work with. It returns the description without them.
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
