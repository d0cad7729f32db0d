package hub

import (
	"context"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
)

// maxCarried bounds the files that a prompt carries: each costs a few questions to
// Redis and the storage.
const maxCarried = 64

// carried are the files that a prompt carries as data: URLs, by where they belong.
type carried map[job.FileRef]files.Embedded

// unpack replaces the data: URLs in a graph by the names that their files will have.
// Nothing is stored yet: the prompt may still be refused. The error is a
// *[catalog.Answer].
func (s *Submitter) unpack(ctx context.Context, g *catalog.Graph) (*catalog.Graph, carried, error) {
	if !g.MentionsDataURL() {
		return g, nil, nil
	}
	s.classes.lookFirst(ctx)
	known := s.classes.stock.catalog()
	var edits []catalog.Edit
	var wrong []catalog.Complaint
	unpacked := carried{}
	for n, f := range known.DataURLs(g) {
		if n == maxCarried {
			wrong = append(wrong, catalog.Complaint{File: f, Reason: fmt.Sprintf("a prompt can have %d data: URLs", maxCarried)})
			break
		}
		e, err := files.ReadDataURL(f.Value, s.maxUpload())
		if err != nil {
			wrong = append(wrong, catalog.Complaint{File: f, Reason: err.Error()})
			continue
		}
		unpacked[e.Ref] = e
		edits = append(edits, f.Rename(e.Ref.Value(false)))
	}
	if len(wrong) > 0 {
		return nil, nil, known.RefuseInputs(g, wrong)
	}
	changed, err := g.Splice(edits)
	return changed, unpacked, err
}

// known says of each file that the tenant has it.
func (c carried) known() map[job.FileRef]bool {
	known := make(map[job.FileRef]bool, len(c))
	for ref := range c {
		known[ref] = true
	}
	return known
}

// keep stores those of the files that a run reads as uploads of the tenant. A file of
// the same name makes way: the name belongs to these bytes.
func (s *Submitter) keep(ctx context.Context, tenant string, c carried, read []catalog.InputFile) error {
	for _, f := range read {
		e, ok := c[f.Ref]
		if !ok {
			continue
		}
		delete(c, f.Ref)
		if _, err := s.store.Upload(ctx, tenant, e.Ref, true, e.Content()); err != nil {
			return err
		}
	}
	return nil
}
