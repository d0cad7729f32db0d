package submit

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// withClient adds the client id to extra_data, where ComfyUI shows it.
func withClient(extra []byte, client string) []byte {
	if client == "" {
		return extra
	}
	return withMember(extra, "client_id", pyjson.String(client))
}

// stamped adds to extra_data what a server of the given version adds itself: when the prompt came,
// and from which of Comfy's own programs.
func stamped(extra []byte, source string, version comfyui.Version) []byte {
	if source != "" && version.AtLeast(0, 25, 0) {
		extra = withMember(extra, "comfy_usage_source", pyjson.String(source))
	}
	if version.AtLeast(0, 3, 69) {
		extra = withMember(extra, "create_time", pyjson.Int(time.Now().UnixMilli()))
	}
	return extra
}

// withMember sets a member of a raw JSON object; the others keep their bytes.
func withMember(object []byte, key string, value pyjson.Value) []byte {
	edit := catalog.Edit{Path: catalog.Path{key}, Value: value}
	out, err := catalog.Splice(object, []catalog.Edit{edit})
	if err == nil {
		return out
	}
	edit.Add = true
	if out, err = catalog.Splice(object, []catalog.Edit{edit}); err != nil {
		return object // not an object; the parser of the request lets none through
	}
	return out
}
