package split

import (
	"fmt"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// Node begins the id of the node that parts have and graphs have not.
	Node = "comfyhub_part"
	// MaxParts bounds the parts of a batch.
	MaxParts = 16
	// maxPictures is the most pictures that a LatentFromBatch node lets through.
	maxPictures = 64
	// drawn is how many numbers torch draws at once. It draws the last few of a tensor anew if its
	// size is no multiple of that, so that the next picture gets other numbers than in a batch.
	drawn = 16
	// maxSide bounds a picture's width and height, as ComfyUI's nodes do.
	maxSide = 16384
	// maxBatch is the largest batch_size that they take.
	maxBatch = 4096
)

// Plan says where a graph is split.
type Plan struct {
	// Batch is how many pictures the graph makes at each of its outputs, at least 2.
	Batch int
	// Node is the id of the node that each part has and the graph has not.
	Node string

	graph []byte
	// latent is the id of the empty latent, and readers are the inputs that it is linked to.
	latent  string
	readers []catalog.Path
}

// Part is a range of the batch, or some of the outputs.
type Part struct {
	// From is the index of its first picture in the batch, and Count how many it has; zeros if it is not
	// of a batch.
	From, Count int
	// Graph makes just these, or all outputs.
	Graph []byte
	// Outputs are the ids of those that it makes; nil for all that are wanted.
	Outputs []string
}

// Find looks where a graph in ComfyUI's API format is split to make the outputs that are wanted.
// Core reports whether a class is ComfyUI's own: custom nodes can take the place of one.
func Find(graph []byte, outputs []string, core func(class string) bool) (Plan, bool) {
	v, err := pyjson.Parse(graph)
	nodes, ok := v.(*pyjson.Object)
	if err != nil || !ok || len(outputs) == 0 || !core(Inserted) {
		return Plan{}, false
	}
	s := search{nodes: nodes, core: core, seen: map[string]bool{}, open: map[string]bool{}}
	for _, id := range outputs {
		if carries, ok := s.visit(id, 0); !ok || !carries {
			return Plan{}, false
		}
	}
	p := Plan{graph: graph, latent: s.latent, readers: s.readers, Node: freeID(nodes)}
	p.Batch, ok = batchOf(nodes.Object(s.latent))
	return p, ok
}

// batchOf returns how many pictures an empty latent is for, and false if the noise of one alone
// is not what it is within the batch. The number of channels is the model's, which the graph does
// not say, so the pixels alone must be enough.
func batchOf(latent *pyjson.Object) (int, bool) {
	inputs, scale := latent.Object("inputs"), scaleOf(latent.String("class_type"))
	width, height, batch := whole(inputs, "width", maxSide), whole(inputs, "height", maxSide), whole(inputs, "batch_size", maxBatch)
	pixels := (width / scale) * (height / scale)
	return batch, batch >= 2 && pixels > 0 && pixels%drawn == 0
}

// whole returns a literal from 1 to most, 0 if it is none.
func whole(inputs *pyjson.Object, name string, most int) int {
	v, _ := inputs.Get(name)
	literal, _ := v.(pyjson.Number)
	n, err := strconv.Atoi(string(literal))
	if err != nil || n < 1 || n > most {
		return 0
	}
	return n
}

// freeID returns an id that no node of the graph has.
func freeID(nodes *pyjson.Object) string {
	id := Node
	for n := 2; nodes.Has(id); n++ {
		id = Node + "_" + strconv.Itoa(n)
	}
	return id
}

// Parts returns the parts of the batch, in order: k of them, fewer if there are fewer pictures or
// k is beyond [MaxParts], and none if a part would be too large for ComfyUI's nodes. Their sizes
// differ by one at most.
func (p Plan) Parts(k int) ([]Part, error) {
	k = min(k, p.Batch, MaxParts)
	if k < 2 || (p.Batch+k-1)/k > maxPictures {
		return nil, nil
	}
	parts := make([]Part, k)
	for i := range parts {
		from, to := p.Batch*i/k, p.Batch*(i+1)/k
		graph, err := p.part(from, to-from)
		if err != nil {
			return nil, fmt.Errorf("split: %w", err)
		}
		parts[i] = Part{From: from, Count: to - from, Graph: graph}
	}
	return parts, nil
}

// part is the graph of some of the pictures. All bytes but the links to the latent stay.
func (p Plan) part(from, count int) ([]byte, error) {
	link := func(node string) pyjson.Value { return pyjson.Array{pyjson.String(node), pyjson.Int(0)} }
	member := func(key string, v pyjson.Value) pyjson.Member { return pyjson.Member{Key: key, Value: v} }
	edits := []catalog.Edit{{Path: catalog.Path{p.Node}, Add: true, Value: pyjson.NewObject(
		member("class_type", pyjson.String(Inserted)),
		member("inputs", pyjson.NewObject(
			member("samples", link(p.latent)), member("batch_index", pyjson.Int(int64(from))), member("length", pyjson.Int(int64(count))))))}}
	for _, place := range p.readers {
		edits = append(edits, catalog.Edit{Path: place, Value: link(p.Node)})
	}
	return catalog.Splice(p.graph, edits)
}
