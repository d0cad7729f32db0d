package plain

import (
	"context"
	"errors"
	"net/url"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// outcome is what the history has of a job.
type outcome struct {
	// outputs are what its nodes have put out, nil if the history has nothing.
	outputs *pyjson.Object
	files   pyjson.Array
	// fault is why a node has failed.
	fault string
}

// outcome reads what has become of an ended job.
func (o *room) outcome(ctx context.Context, a api.Requester, j job.Job) (outcome, error) {
	entry, err := o.hub().Jobs.Outcome(ctx, j)
	if errors.Is(err, view.ErrNoJob) {
		return outcome{}, nil // removed from the history
	}
	if err != nil {
		return outcome{}, err
	}
	raw, release, err := o.Unpack(ctx, a, entry)
	if err != nil {
		return outcome{}, err
	}
	defer release()
	return readOutcome(raw, a.Base), nil
}

// readOutcome reads a history entry; base begins the URLs of its files.
func readOutcome(entry []byte, base string) outcome {
	parsed, ok := comfyui.ParseEntry(entry)
	if !ok {
		return outcome{}
	}
	out := outcome{outputs: pyjson.NewObject(), files: pyjson.Array{}}
	if v, err := pyjson.Parse(parsed.Outputs); err == nil {
		if outputs, ok := v.(*pyjson.Object); ok {
			out.outputs = outputs
		}
	}
	pyjson.Members(parsed.Outputs, func(node string, value []byte) {
		for _, f := range comfyui.Files(value) {
			out.files = append(out.files, fileValue(node, f.Ref, base))
		}
	})
	if parsed.End == comfyui.TypeExecutionError {
		if v, err := pyjson.Parse(parsed.EndData); err == nil {
			failure, _ := v.(*pyjson.Object)
			out.fault = api.Sentence(failure.String("node_type"), failure.String("exception_message"))
		}
	}
	return out
}

// fileValue is a file with the URL at which its owner finds it.
func fileValue(node string, f job.FileRef, base string) *pyjson.Object {
	query := url.Values{"filename": {f.Filename}, "subfolder": {f.Subfolder}, "type": {f.Type}}
	return pyjson.NewObject(
		pyjson.Member{Key: "node", Value: pyjson.String(node)},
		pyjson.Member{Key: "filename", Value: pyjson.String(f.Filename)},
		pyjson.Member{Key: "subfolder", Value: pyjson.String(f.Subfolder)},
		pyjson.Member{Key: "type", Value: pyjson.String(f.Type)},
		pyjson.Member{Key: "url", Value: pyjson.String(base + "/view?" + query.Encode())},
	)
}

func (t outcome) value() *pyjson.Object {
	return pyjson.NewObject(
		pyjson.Member{Key: "files", Value: t.files},
		pyjson.Member{Key: "outputs", Value: t.outputs},
	)
}
