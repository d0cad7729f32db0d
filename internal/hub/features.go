package hub

import "github.com/comfyhub/comfyhub/internal/pyjson"

// Features returns the server's feature flags, for GET /features and sockets: what a server of the
// fleet's version announces, as far as the hub can keep it.
func (h *Hub) Features() []byte {
	flags := pyjson.NewObject(pyjson.Member{Key: "supports_preview_metadata", Value: pyjson.Bool(true)})
	current := h.dispatch.Version().AtLeast(0, 17, 0)
	if current {
		flags.Set("supports_model_type_tags", pyjson.Bool(true))
	}
	flags.Set("max_upload_size", pyjson.Int(h.Settings().MaxUpload))
	if current {
		manager := pyjson.NewObject(pyjson.Member{Key: "supports_v4", Value: pyjson.Bool(true)})
		flags.Set("extension", pyjson.NewObject(pyjson.Member{Key: "manager", Value: manager}))
		flags.Set("node_replacements", pyjson.Bool(true))
		flags.Set("assets", pyjson.Bool(false))
	}
	return pyjson.Marshal(flags)
}
