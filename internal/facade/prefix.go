package facade

import (
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// OutputPrefix is how the names of an output node's files begin, as [Run.Save] wants it.
func OutputPrefix(node *pyjson.Object) string {
	prefix := node.Object("inputs").String("filename_prefix")
	if at := strings.LastIndexAny(prefix, `/\`); at >= 0 {
		prefix = prefix[at+1:]
	}
	if prefix == "" || strings.ContainsAny(prefix, "%\x00") || strings.HasPrefix(prefix, ".") || len(prefix) > 100 {
		return "ComfyUI"
	}
	return prefix
}
