package upstream

import (
	"maps"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Features returns the server's feature flags, for GET /features and sockets: what all connected
// ComfyUIs announce, as far as the hub can keep it, and what the hub itself does.
func (n *Instances) Features() []byte {
	agreed := n.Dispatch.Instances.Flags()
	flags := pyjson.NewObject(pyjson.Member{Key: "supports_preview_metadata", Value: pyjson.Bool(true)})
	take := func(name string) {
		if value, ok := agreed[name]; ok {
			put(flags, strings.Split(name, "."), value)
			delete(agreed, name)
		}
	}
	take(comfyui.FlagModelTypeTags)
	flags.Set("max_upload_size", pyjson.Int(n.Settings().MaxUpload))
	names := slices.Sorted(maps.Keys(agreed))
	for _, name := range names { // in ComfyUI's order
		if strings.Contains(name, ".") {
			take(name)
		}
	}
	take(comfyui.FlagReplacements)
	if _, known := agreed[comfyui.FlagAssets]; known {
		agreed[comfyui.FlagAssets] = false // each instance has its own
		take(comfyui.FlagAssets)
	}
	for _, name := range names {
		take(name)
	}
	return pyjson.Marshal(flags)
}

// put sets a member of an object, and makes the objects on the way there.
func put(o *pyjson.Object, path []string, value bool) {
	for _, name := range path[:len(path)-1] {
		if o.Object(name) == nil {
			o.Set(name, &pyjson.Object{})
		}
		o = o.Object(name)
	}
	o.Set(path[len(path)-1], pyjson.Bool(value))
}
