package comfyui

import (
	"bytes"
	"maps"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Flags are what a server announces in feature_flags, as far as a hub may announce it in turn:
// by name, "extension.manager.supports_v4" for members of objects. The value is false for a flag
// that is there and is not true.
type Flags map[string]bool

// Flags of ComfyUI itself.
const (
	FlagModelTypeTags = "supports_model_type_tags"
	FlagReplacements  = "node_replacements"
	FlagAssets        = "assets"
)

// passed are the flags that a hub can announce for its servers. The last three are those of
// --feature-flag. What else a server announces may be about routes and messages that a hub does not
// have, or is an address, which would be the server's to choose.
const passed = FlagModelTypeTags + " " + FlagReplacements + " " + FlagAssets +
	" show_signin_button enable_telemetry partner_run_gate_enabled"

// flagExtension holds the flags of custom node packs.
const flagExtension = "extension"

const (
	// maxFlagsFrame bounds the message, in bytes. That of ComfyUI 0.38 has some 300.
	maxFlagsFrame = 16 << 10
	// maxFlags, maxFlagName and maxFlagDepth bound the flags of custom node packs.
	maxFlags     = 64
	maxFlagName  = 64
	maxFlagDepth = 3
)

// ParseFlags reads a frame that a server sent; false if it is no announcement, or too large.
func ParseFlags(f Frame) (Flags, bool) {
	if f.Binary || len(f.Data) > maxFlagsFrame || !bytes.Contains(f.Data[:min(len(f.Data), 64)], []byte(TypeFeatureFlags)) {
		return nil, false
	}
	m, ok := ParseMessage(f.Data)
	if !ok || m.Type != TypeFeatureFlags {
		return nil, false
	}
	v, err := pyjson.Parse(m.Data)
	if err != nil {
		return nil, false
	}
	told, _ := v.(*pyjson.Object)
	flags := Flags{}
	for name := range strings.FieldsSeq(passed) {
		if v, ok := told.Get(name); ok {
			flags[name] = v == pyjson.Value(pyjson.Bool(true))
		}
	}
	flags.addAll(flagExtension, told.Object(flagExtension), 1)
	return flags, true
}

// addAll adds the booleans in an object of custom node packs.
func (f Flags) addAll(prefix string, o *pyjson.Object, depth int) {
	for name, v := range o.All() {
		if len(f) >= maxFlags || name == "" || len(name) > maxFlagName || strings.Contains(name, ".") {
			continue
		}
		switch v := v.(type) {
		case pyjson.Bool:
			f[prefix+"."+name] = bool(v)
		case *pyjson.Object:
			if depth < maxFlagDepth {
				f.addAll(prefix+"."+name, v, depth+1)
			}
		}
	}
}

// AgreedFlags are those that all servers announce. A flag of which they say different things is left
// out, so that a web UI does what it does without; but that of assets is there.
func AgreedFlags(servers []Flags) Flags {
	agreed := Flags{}
	for i, flags := range servers {
		if i == 0 {
			agreed = maps.Clone(flags)
		}
		maps.DeleteFunc(agreed, func(name string, value bool) bool {
			other, told := flags[name]
			return !told || value != other && name != FlagAssets
		})
	}
	return agreed
}
