package split

import (
	"fmt"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Piece is what a part has put out, as far as its files get their names at once.
type Piece struct {
	// Part is the place of the part among all.
	Part int
	// Outputs are by node, as in a history entry.
	Outputs []byte
}

// Pieces takes what the parts of a batch have put out apart, in the order in which one instance would
// have named the files: all pictures of one node, and then those of the next. The error is [ErrOutputs].
func (p Plan) Pieces(parts []Part, outputs [][]byte) ([]Piece, error) {
	if _, err := Merge(parts, outputs); err != nil {
		return nil, err
	}
	nodes := make([]*pyjson.Object, len(outputs))
	for n, raw := range outputs {
		v, _ := pyjson.Parse(raw)
		nodes[n], _ = v.(*pyjson.Object) // Merge has read it
	}
	var pieces []Piece
	for id := range nodes[0].All() {
		for n := range nodes {
			pieces = append(pieces, Piece{n, pyjson.Marshal(pyjson.NewObject(pyjson.Member{Key: id, Value: nodes[n].Object(id)}))})
		}
	}
	return pieces, nil
}

// Join puts pieces together again whose files may have other names now.
func (p Plan) Join(parts []Part, pieces []Piece) ([]byte, error) {
	of := make([][][]byte, len(parts))
	for _, piece := range pieces {
		of[piece.Part] = append(of[piece.Part], piece.Outputs)
	}
	outputs := make([][]byte, len(parts))
	for n := range of {
		var err error
		if outputs[n], err = Union(of[n]); err != nil {
			return nil, err
		}
	}
	return Merge(parts, outputs)
}

// Pieces is [Plan.Pieces] for branches: the outputs in the order of the graph, and then what other
// nodes have put out, once for each node. Each part must have put out all that it was to, and nothing
// of another part.
func (b Branches) Pieces(parts []Part, outputs [][]byte) ([]Piece, error) {
	if len(outputs) != len(parts) {
		return nil, fmt.Errorf("%w: outputs of %d of %d parts", ErrOutputs, len(outputs), len(parts))
	}
	by := map[string]Piece{}
	var others []string
	for n, raw := range outputs {
		v, err := pyjson.Parse(raw)
		nodes, ok := v.(*pyjson.Object)
		if err != nil || !ok || slices.ContainsFunc(parts[n].Outputs, func(id string) bool { return nodes.Object(id) == nil }) {
			return nil, fmt.Errorf("%w: part %d", ErrOutputs, n)
		}
		for id, output := range nodes.All() {
			wanted := slices.Contains(b.outputs, id)
			if wanted && !slices.Contains(parts[n].Outputs, id) {
				return nil, fmt.Errorf("%w: part %d", ErrOutputs, n)
			}
			if _, twice := by[id]; twice {
				continue
			}
			by[id] = Piece{n, pyjson.Marshal(pyjson.NewObject(pyjson.Member{Key: id, Value: output}))}
			if !wanted {
				others = append(others, id)
			}
		}
	}
	var pieces []Piece
	for _, id := range slices.Concat(b.outputs, others) {
		pieces = append(pieces, by[id])
	}
	return pieces, nil
}

// Join is [Plan.Join] for branches.
func (b Branches) Join(_ []Part, pieces []Piece) ([]byte, error) {
	texts := make([][]byte, len(pieces))
	for n, piece := range pieces {
		texts[n] = piece.Outputs
	}
	return Union(texts)
}

// Union returns an object with the members of several, of those that are in several the first.
func Union(objects [][]byte) ([]byte, error) {
	all := &pyjson.Object{}
	for _, raw := range objects {
		v, err := pyjson.Parse(raw)
		o, ok := v.(*pyjson.Object)
		if err != nil || !ok {
			return nil, ErrOutputs
		}
		for key, value := range o.All() {
			if !all.Has(key) {
				all.Set(key, value)
			}
		}
	}
	return pyjson.Marshal(all), nil
}

// Inserted is the id of the node that each part has and the graph has not.
func (p Plan) Inserted() string { return p.Node }

// Inserted is empty: a part of branches has no other nodes.
func (b Branches) Inserted() string { return "" }
