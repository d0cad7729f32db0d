package sim

import (
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// textNode returns the behaviour of classes that handle plain values.
func textNode(class string) (nodeType, bool) {
	switch class {
	case "PreviewAny":
		return nodeType{run: runPreviewAny}, true
	case "PrimitiveString", "PrimitiveStringMultiline", "PrimitiveBoolean", "PrimitiveInt", "PrimitiveFloat":
		return nodeType{run: func(c *call) (nodeResult, *exception) { return one(c.args["value"]), nil }}, true
	case "StringConcatenate":
		return nodeType{run: func(c *call) (nodeResult, *exception) {
			return one(pyjson.String(c.text("string_a") + c.text("delimiter") + c.text("string_b"))), nil
		}}, true
	}
	return nodeType{}, false
}

func runPreviewAny(c *call) (nodeResult, *exception) {
	var text string
	switch v := c.args["source"].(type) {
	case nil:
		text = "None"
	case pyjson.Number, pyjson.Bool, pyjson.String:
		text = python.Str(v.(pyjson.Value))
	case pyjson.Value:
		text = string(pyjson.Marshal(v))
	case images:
		text = v.printed()
	default:
		text = "source exists, but could not be serialized."
	}
	result := nodeResult{ui: dict("text", list(text))}
	for range c.class.outputs {
		result.outputs = append(result.outputs, pyjson.String(text))
	}
	return result, nil
}
