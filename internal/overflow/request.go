package overflow

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// maxRequest bounds the graph and the input files of a run, in bytes as they are sent: RunPod takes
// 10 MB.
const maxRequest = 9_500_000

// request is what an endpoint is asked for a prompt. The error is a *[RefusedError] if the prompt must
// not or cannot go there.
func (e *Endpoint) request(r *facade.Run, key string) (Request, error) {
	names := r.Inputs()
	if len(names) > 0 && !e.o.Inputs {
		return Request{}, &RefusedError{Reason: "it has input files, which may not leave"}
	}
	out := Request{Key: key, Outputs: r.Outputs, Timeout: e.o.Timeout, Lifetime: e.lifetime()}
	room := int64(maxRequest)
	flat := map[string]string{}
	for n, name := range names {
		content, err := readInput(r, name, room)
		if err != nil {
			return Request{}, err
		}
		room -= int64(len(content))
		flat[name] = flatName(name, n)
		out.Files = append(out.Files, InputFile{flat[name], content})
	}
	graph := rewrite(e.needed(r), flat, prefixes(r))
	if out.Workflow = pyjson.Marshal(graph); int64(len(out.Workflow)) > room {
		return Request{}, tooLarge()
	}
	if e.o.Secrets {
		out.APIKey = r.Extra.String("api_key_comfy_org")
	}
	return out, nil
}

func tooLarge() error {
	return &RefusedError{Reason: fmt.Sprintf("with its input files it has more than %d bytes", maxRequest)}
}

// readInput reads an input file, in at most room bytes of base64.
func readInput(r *facade.Run, name string, room int64) (string, error) {
	file, err := r.Input(name)
	if err != nil {
		return "", &RefusedError{Reason: "an input file is not there"}
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, room/4*3+1))
	switch {
	case err != nil:
		return "", &RefusedError{Reason: "an input file cannot be read"}
	case int64(len(data)) > room/4*3:
		return "", tooLarge()
	}
	return base64.StdEncoding.EncodeToString(data), nil
}

// flatName is the name of an input file at the endpoint, which has no folders and only inputs.
func flatName(name string, n int) string {
	for _, kind := range []string{" [input]", " [output]", " [temp]"} {
		name = strings.TrimSuffix(name, kind)
	}
	return "comfyhub-" + strconv.Itoa(n) + "-" + path.Base(name)
}

// prefixes are the beginnings of file names by which the files of several output nodes are told apart,
// by node; none if there is one node.
func prefixes(r *facade.Run) map[string]string {
	if len(r.Outputs) < 2 {
		return nil
	}
	all := map[string]string{}
	for n, id := range r.Outputs {
		all[id] = "comfyhub-" + strconv.Itoa(n)
	}
	return all
}

// needed is the graph without what only other output nodes need: an endpoint runs all that it is
// given.
func (e *Endpoint) needed(r *facade.Run) *pyjson.Object {
	whole := true
	for id := range r.Graph.All() {
		if e.o.IsOutput(r.Class(id)) && !slices.Contains(r.Outputs, id) {
			whole = false
		}
	}
	if whole {
		return r.Graph
	}
	keep := map[string]bool{}
	for left := slices.Clone(r.Outputs); len(left) > 0; {
		id := left[0]
		if left = left[1:]; keep[id] || !r.Graph.Has(id) {
			continue
		}
		keep[id] = true
		for _, v := range r.Graph.Object(id).Object("inputs").All() {
			if link, ok := v.(pyjson.Array); ok && len(link) == 2 {
				if from, ok := link[0].(pyjson.String); ok {
					left = append(left, string(from))
				}
			}
		}
	}
	graph := &pyjson.Object{}
	for id, v := range r.Graph.All() {
		if keep[id] {
			graph.Set(id, v)
		}
	}
	return graph
}

// rewrite changes the names of input files, and the prefixes of output nodes. It leaves the graph that
// it is given as it is.
func rewrite(graph *pyjson.Object, files, prefixes map[string]string) *pyjson.Object {
	if len(files) == 0 && len(prefixes) == 0 {
		return graph
	}
	out := &pyjson.Object{}
	for id, v := range graph.All() {
		node, ok := v.(*pyjson.Object)
		if !ok {
			out.Set(id, v)
			continue
		}
		inputs := &pyjson.Object{}
		for name, v := range node.Object("inputs").All() {
			text, isText := v.(pyjson.String)
			to, isFile := files[string(text)]
			switch prefix := prefixes[id]; {
			case isText && name == "filename_prefix" && prefix != "":
				v = pyjson.String(prefix)
			case isText && isFile:
				v = pyjson.String(to)
			}
			inputs.Set(name, v)
		}
		changed := &pyjson.Object{}
		for name, v := range node.All() {
			changed.Set(name, v)
		}
		changed.Set("inputs", inputs)
		out.Set(id, changed)
	}
	return out
}

// nodeOf is the output node that a file is of.
func nodeOf(r *facade.Run, f OutputFile) string {
	if r.Class(f.Node) != "" {
		return f.Node
	}
	for id, prefix := range prefixes(r) {
		if strings.HasPrefix(f.Name, prefix+"_") {
			return id
		}
	}
	return r.Outputs[0]
}

// markOf says which attempt at which job a prompt is. The error means that no hub has sent it.
func markOf(r *facade.Run) (job string, fence int64, err error) {
	mark := r.Extra.Object("comfyhub")
	v, _ := mark.Get("fence")
	n, _ := v.(pyjson.Number)
	fence, ok := n.Int64()
	if job = mark.String("job"); job == "" || !ok {
		return "", 0, errors.New("no hub has sent this prompt")
	}
	return job, fence, nil
}
