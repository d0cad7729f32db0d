package submit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
)

// MaxCarried bounds the files that a prompt carries: each costs a few questions to Redis and the
// storage.
const MaxCarried = 64

// carried are the files that come with a prompt, as data: URLs or behind https URLs.
type carried struct {
	// files are keyed by where they belong.
	files map[job.FileRef]interface{ Content() io.Reader }
	// turn is for those behind URLs; nil if there are none.
	turn *fetching
}

// close deletes what is not stored.
func (c *carried) close() {
	if c != nil && c.turn != nil {
		c.turn.close()
	}
}

// known returns these files as ones that the tenant has.
func (c *carried) known() map[job.FileRef]bool {
	known := map[job.FileRef]bool{}
	if c != nil {
		for ref := range c.files {
			known[ref] = true
		}
	}
	return known
}

// unpack replaces the URLs in a graph that stand for files with the names that the files will have.
// Nothing is stored yet: the prompt may still be refused. The error is a *[catalog.Answer],
// errFetching, or one of the local disk or the context.
func (s *Submitter) unpack(ctx context.Context, tenant string, g *catalog.Graph) (*catalog.Graph, *carried, error) {
	schemes, hosts := []string{"data:"}, s.Fetcher.settings().InputsFrom
	if !hosts.Empty() {
		schemes = append(schemes, "https:", "http:")
	}
	if !g.Mentions(schemes...) {
		return g, nil, nil
	}
	s.Classes.LookFirst(ctx)
	known := s.Classes.Inventory.Catalog()
	found := known.URLs(g, schemes...)
	if wrong := checkLinks(hosts, found); len(wrong) > 0 { // before anything is fetched
		return nil, nil, known.RefuseInputs(g, wrong)
	}
	c := &carried{files: make(map[job.FileRef]interface{ Content() io.Reader }, len(found))}
	edits, wrong, err := s.read(ctx, tenant, c, found)
	if err == nil && len(wrong) > 0 {
		err = known.RefuseInputs(g, wrong)
	}
	if err == nil {
		g, err = g.Splice(edits)
	}
	if err != nil {
		c.close()
		return nil, nil, err
	}
	return g, c, nil
}

// checkLinks says what is wrong with URLs without following them.
func checkLinks(hosts egress.Hosts, found []catalog.InputFile) (wrong []catalog.Complaint) {
	for n, f := range found {
		if n == MaxCarried {
			return append(wrong, catalog.Complaint{File: f, Reason: fmt.Sprintf("a prompt can have %d files as URLs", MaxCarried)})
		}
		if isData(f) {
			continue
		}
		if err := checkLink(hosts, f.Value); err != nil {
			wrong = append(wrong, catalog.Complaint{File: f, Reason: err.Error()})
		}
	}
	return wrong
}

func isData(f catalog.InputFile) bool { return strings.HasPrefix(f.Value, "data:") }

// read reads the files behind URLs into c and returns how to name them in the graph.
func (s *Submitter) read(ctx context.Context, tenant string, c *carried, found []catalog.InputFile) (edits []catalog.Edit, wrong []catalog.Complaint, err error) {
	for _, f := range found {
		var ref job.FileRef
		if isData(f) {
			var e files.Embedded
			if e, err = files.ReadDataURL(f.Value, s.MaxUpload()); err == nil {
				ref, c.files[e.Ref] = e.Ref, e
			}
		} else {
			if c.turn == nil {
				if c.turn, err = s.Fetcher.begin(ctx, tenant); err != nil {
					return nil, nil, err
				}
			}
			var fetched *files.Fetched
			if fetched, err = c.turn.fetch(f.Value); err == nil {
				ref, c.files[fetched.Ref] = fetched.Ref, fetched
			}
		}
		var badData *files.DataURLError
		var badURL *fetchError
		switch {
		case err == nil:
			edits = append(edits, f.Rename(ref.Value(false)))
		case errors.As(err, &badData), errors.As(err, &badURL):
			wrong = append(wrong, catalog.Complaint{File: f, Reason: err.Error()})
		default:
			return nil, nil, err
		}
	}
	return edits, wrong, nil
}

// keep stores those of the files that a run reads, as uploads of the tenant. A file of the same
// name is replaced: the name belongs to these bytes.
func (s *Submitter) keep(ctx context.Context, tenant string, c *carried, read []catalog.InputFile) error {
	if c == nil {
		return nil
	}
	kept := map[job.FileRef]bool{}
	for _, f := range read {
		file := c.files[f.Ref]
		if file == nil || kept[f.Ref] {
			continue
		}
		kept[f.Ref] = true
		if _, err := s.Store.Upload(ctx, tenant, f.Ref, true, file.Content()); err != nil {
			return err
		}
	}
	return nil
}
