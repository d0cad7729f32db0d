package submit

import (
	"context"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// heldClass begins the names of the node classes that read held pictures.
	heldClass = "ETN_"
	// MaxHeldIDs bounds the pictures of one graph.
	MaxHeldIDs = 256
)

// heldIn lists the held pictures that a graph names.
func heldIn(ctx context.Context, held *files.Held, tenant string, graph *catalog.Graph) []string {
	nodes, _ := graph.Root().(*pyjson.Object)
	var ids []string
	for _, v := range nodes.All() {
		node, _ := v.(*pyjson.Object)
		if !strings.HasPrefix(node.String("class_type"), heldClass) {
			continue
		}
		for _, input := range node.Object("inputs").All() {
			id, _ := input.(pyjson.String)
			if id != "" && len(ids) < MaxHeldIDs && !slices.Contains(ids, string(id)) && held.Has(ctx, tenant, string(id)) {
				ids = append(ids, string(id))
			}
		}
	}
	return ids
}
