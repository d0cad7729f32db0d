package stream

import "github.com/comfyhub/comfyhub/internal/pyjson"

// defaultFeatures are the feature flags of ComfyUI 0.3.64.
const defaultFeatures = `{"supports_preview_metadata": true, "max_upload_size": 104857600}`

// flags negotiates features on one socket. As in ComfyUI, only the first JSON
// object from the client counts. Anything that is not a JSON object is ignored; a
// JSON object of another type ends the negotiation.
type flags struct {
	settled bool
}

// read examines a text message from the client. announced reports that it was the
// client's announcement, which needs an answer; metadata reports that the client
// accepts previews with metadata.
func (g *flags) read(message []byte) (announced, metadata bool) {
	if g.settled {
		return false, false
	}
	v, err := pyjson.Parse(message)
	if err != nil {
		return false, false
	}
	o, ok := v.(*pyjson.Object)
	if !ok {
		return false, false
	}
	g.settled = true
	if o.String("type") != "feature_flags" {
		return false, false
	}
	wants, _ := o.Object("data").Get("supports_preview_metadata")
	return true, wants == pyjson.Bool(true)
}

// featuresMessage answers the announcement with the server's own features, a JSON
// object.
func featuresMessage(features []byte) []byte {
	data := append([]byte(nil), `{"type": "feature_flags", "data": `...)
	data = append(data, features...)
	return append(data, '}')
}
