package comfyui

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Texts returns the strings in the outputs of a history entry, each once and no more than
// most, in the order of the nodes: whatever a node such as PreviewAny shows as
// {"text": ["..."]}. Nodes name that member differently, so every list of strings counts.
// Empty texts and data URLs, which only a web page can show, do not.
func Texts(outputs []byte, most int) (texts []string) {
	pyjson.Members(outputs, func(_ string, node []byte) {
		pyjson.Members(node, func(_ string, value []byte) {
			var list []string
			if json.Unmarshal(value, &list) != nil {
				var one string
				if json.Unmarshal(value, &one) != nil {
					return
				}
				list = []string{one}
			}
			for _, text := range list {
				text = strings.TrimSpace(text)
				if text != "" && !strings.HasPrefix(text, "data:") && len(texts) < most && !slices.Contains(texts, text) {
					texts = append(texts, text)
				}
			}
		})
	})
	return texts
}
