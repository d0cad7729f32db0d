package submit

import (
	"context"
	"encoding/json"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
)

// Pin notes what the files in a graph mean now.
func (s *Submitter) Pin(ctx context.Context, tenant string, graph *catalog.Graph, named []catalog.InputFile) ([]byte, error) {
	in := files.Inputs{Version: 1, Held: heldIn(ctx, s.Held, tenant, graph)}
	refs := make([]job.FileRef, 0, len(named))
	for _, f := range named {
		refs = append(refs, f.Ref)
		in.Places = append(in.Places, files.InputPlace{Path: f.Path, Value: f.Value, Ref: f.Ref})
	}
	pins, err := s.Store.Pin(ctx, tenant, refs)
	if err != nil || len(pins) == 0 && len(in.Held) == 0 {
		return nil, err
	}
	if in.Pins, err = pins.Encode(); err != nil {
		return nil, err
	}
	return json.Marshal(in)
}
