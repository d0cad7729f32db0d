package comfyv2

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

const (
	// maxSized bounds the outputs of an answer whose sizes are looked up; those of others are 0.
	maxSized = 100
	// maxOutputs bounds the outputs of a job that are shown: an instance can name millions, and each
	// takes a hundred times as much memory in an answer as in the history.
	maxOutputs = 10_000
)

// output is a file that a node has put out.
type output struct {
	node, kind string
	ref        job.FileRef
}

// outcome is what the history has of a job.
type outcome struct {
	outputs []output
	// fault is why a node has failed; nil if none has.
	fault *pyjson.Object
	// reused says that nodes were not executed, because their outputs were there.
	reused bool
}

// outcome reads what has become of an ended job.
func (o jobs) outcome(ctx context.Context, a api.Requester, j job.Job) (outcome, error) {
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
	return readOutcome(raw), nil
}

// readOutcome reads a history entry.
func readOutcome(entry []byte) outcome {
	parsed, ok := comfyui.ParseEntry(entry)
	if !ok {
		return outcome{}
	}
	var out outcome
	pyjson.Members(parsed.Outputs, func(node string, value []byte) {
		pyjson.Members(value, func(key string, list []byte) {
			for _, f := range comfyui.Files(list) {
				if len(out.outputs) == maxOutputs {
					return
				}
				out.outputs = append(out.outputs, output{node: node, kind: kindOf(key, f.Ref.Filename), ref: f.Ref})
			}
		})
	})
	if parsed.End == comfyui.TypeExecutionError {
		v, _ := pyjson.Parse(parsed.EndData)
		data, _ := v.(*pyjson.Object)
		out.fault = faultOf(data)
	}
	for _, m := range parsed.Messages {
		if m.Type != comfyui.TypeExecutionCached {
			continue
		}
		v, _ := pyjson.Parse(m.Data)
		data, _ := v.(*pyjson.Object)
		out.reused = out.reused || len(data.Array("nodes")) > 0
	}
	return out
}

// faultOf is an execution_error as the error of a job.
func faultOf(data *pyjson.Object) *pyjson.Object {
	var lines []string
	for _, line := range data.Array("traceback") {
		if l, ok := line.(pyjson.String); ok {
			lines = append(lines, string(l))
		}
	}
	return object(
		"code", pyjson.String("node_execution_error"),
		"message", pyjson.String(data.String("exception_message")),
		"node_id", text(data.String("node_id")),
		"class_type", text(data.String("node_type")),
		"traceback", text(strings.Join(lines, "")),
	)
}

// kindOf is what an output is: what the node calls it, where that tells enough, else what the
// name of its file says.
func kindOf(key, filename string) string {
	switch key {
	case "audio":
		return "audio"
	case "text":
		return "text"
	case "latents":
		return "latent"
	case "gifs", "video", "videos":
		return "video"
	case "files":
		return "file"
	}
	kind, _, _ := strings.Cut(files.ContentType(filename), "/")
	if kind == "image" || kind == "video" || kind == "audio" {
		return kind
	}
	if key == "images" {
		return "image"
	}
	return "file"
}

// outputValues are the outputs of a job, with links for its owner and the sizes of so many.
func (o jobs) outputValues(ctx context.Context, a api.Requester, jobID string, all []output, sized int) (pyjson.Array, error) {
	list := pyjson.Array{}
	for n, out := range all {
		size := int64(0)
		if n < sized {
			f, err := o.hub().Links.File(ctx, a.Tenant, out.ref)
			if err != nil && !errors.Is(err, links.ErrNoFile) {
				return nil, err
			}
			size = f.Size
		}
		list = append(list, outputValue(a, jobID, out, size))
	}
	return list, nil
}

func outputValue(a api.Requester, jobID string, out output, size int64) *pyjson.Object {
	id := outputID(jobID, out.ref)
	return object(
		"node_id", pyjson.String(out.node),
		"name", pyjson.String(out.ref.Filename),
		"type", pyjson.String(out.kind),
		"content_type", pyjson.String(files.ContentType(out.ref.Filename)),
		"size_bytes", pyjson.Int(size),
		"id", pyjson.String(id),
		"hash", pyjson.Null{},
		"url", contentURL(a, id),
		"url_expires_at", moment(time.Now().Add(linkLife)),
		"job_id", pyjson.String(jobID),
	)
}

// contentURL is where the bytes of an asset or an output are.
func contentURL(a api.Requester, id string) pyjson.Value {
	return pyjson.String(a.Base + assetsPath + "/" + id + "/content")
}
