package submit

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/resultcache"
	"github.com/comfyhub/comfyhub/internal/run"
)

// subject returns what the result of a prompt depends on; false if that is more than can be known.
func (s *Submitter) subject(tenant string, verdict *catalog.Verdict, pins []byte, other []byte) (subject resultcache.Subject, known bool) {
	if other != nil {
		return subject, false
	}
	subject, known = resultcache.Of(verdict.Graph.Root(), verdict.Outputs, contents(pins))
	subject.Kept = s.LimitsOf(tenant).ResultCache > 0
	return subject, known
}

// contents returns the SHA-256 of the input files of a prompt by the id of the node that names them.
func contents(encoded []byte) map[string]string {
	in, err := files.DecodeInputs(encoded)
	if err != nil {
		return nil
	}
	pins, err := files.DecodePins(in.Pins)
	if err != nil {
		return nil
	}
	sums := map[job.FileRef]string{}
	for _, p := range pins {
		sums[p.Ref] = p.SHA256
	}
	nodes := map[string]string{}
	for _, place := range in.Places {
		if len(place.Path) > 0 {
			nodes[place.Path[0]] = sums[place.Ref]
		}
	}
	return nodes
}

// repeat returns the result that a prompt has without running; nil if there is none.
func (s *Submitter) repeat(ctx context.Context, q queue.Submission) *run.Repeat {
	subject, known := resultcache.Decode(q.Body.Subject)
	if !known || !subject.Kept {
		return nil
	}
	return s.Dispatch.Repeats.Find(ctx, q.Tenant, subject, s.LimitsOf(q.Tenant).ResultCache)
}
