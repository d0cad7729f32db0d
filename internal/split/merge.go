package split

import (
	"errors"
	"fmt"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ErrOutputs means that what parts have put out is not what their graphs make.
var ErrOutputs = errors.New("split: a part has other outputs than its graph makes")

// Merge puts together what the parts have put out, each a history entry's outputs by node: the
// pictures of each node in the order of the batch. The names of files stay as they are. The error
// is [ErrOutputs].
func Merge(parts []Part, outputs [][]byte) ([]byte, error) {
	if len(outputs) != len(parts) || len(parts) == 0 {
		return nil, fmt.Errorf("%w: outputs of %d of %d parts", ErrOutputs, len(outputs), len(parts))
	}
	all := &pyjson.Object{}
	for i, raw := range outputs {
		v, err := pyjson.Parse(raw)
		nodes, ok := v.(*pyjson.Object)
		if err != nil || !ok || i > 0 && nodes.Len() != all.Len() {
			return nil, fmt.Errorf("%w: part %d", ErrOutputs, i)
		}
		for id := range nodes.All() {
			if err := appendPictures(all, id, nodes.Object(id), parts[i].Count, i == 0); err != nil {
				return nil, fmt.Errorf("%w: part %d", err, i)
			}
		}
	}
	return pyjson.Marshal(all), nil
}

// appendPictures adds a part's pictures to those of the parts before it.
func appendPictures(all *pyjson.Object, id string, output *pyjson.Object, count int, first bool) error {
	pictures := output.Array("images")
	if len(pictures) != count || output.Len() != 1 || !first && !all.Has(id) {
		return ErrOutputs
	}
	before := all.Object(id).Array("images")
	all.Set(id, pyjson.NewObject(pyjson.Member{Key: "images", Value: slices.Concat(before, pictures)}))
	return nil
}
