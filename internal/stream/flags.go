package stream

import "github.com/comfyhub/comfyhub/internal/pyjson"

// defaultFeatures is what ComfyUI 0.3.64 says of itself.
const defaultFeatures = `{"supports_preview_metadata": true, "max_upload_size": 104857600}`

// flags is the negotiation of features on one socket. As in ComfyUI only the
// first JSON object that the client sends counts; what is no JSON object does
// not spoil it, another object does.
type flags struct {
	settled bool
}

// read looks at a text message of the client. announced reports that it was
// the announcement, which is to be answered; metadata that the client takes
// previews with metadata.
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

// featuresMessage answers the announcement with the server's own features, a
// JSON object.
func featuresMessage(features []byte) []byte {
	data := append([]byte(nil), `{"type": "feature_flags", "data": `...)
	data = append(data, features...)
	return append(data, '}')
}
