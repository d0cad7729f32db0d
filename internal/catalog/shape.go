package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Shape names what a graph costs its GPU: prompts that differ only in their texts and
// seeds have the same shape. It is empty for what is no graph.
func Shape(graph []byte) string {
	g, err := ParseGraph(graph)
	if err != nil {
		return ""
	}
	var nodes []string
	for id := range g.nodes().All() {
		nodes = append(nodes, id)
	}
	slices.Sort(nodes)
	h := sha256.New()
	add := func(parts ...string) {
		for _, part := range parts {
			h.Write([]byte(part))
			h.Write([]byte{0})
		}
	}
	for _, id := range nodes {
		add(id, g.classType(id))
		inputs := g.inputs(id)
		var names []string
		for name := range inputs.All() {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if value, _ := inputs.Get(name); costs(name, value) {
				add(name, string(pyjson.Marshal(value)))
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// costs reports whether the value of an input can matter for the memory that a node
// needs: a seed and a text do not, a model's name does.
func costs(name string, value pyjson.Value) bool {
	if strings.Contains(name, "seed") || name == "nonce" || name == "filename_prefix" {
		return false
	}
	if _, text := value.(pyjson.String); text {
		return looksLikeFile(value)
	}
	return true
}
