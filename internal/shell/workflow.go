package shell

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// maxWorkflow bounds a workflow and each file inside it, in bytes. The hub has bounds of
// its own.
const maxWorkflow = 1 << 30

// readFile reads a file, or what comes in if its name is -.
func readFile(name string, in io.Reader) ([]byte, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, usagef("%w", err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, maxWorkflow+1))
	switch {
	case err != nil:
		return nil, usagef("%w", err)
	case len(data) > maxWorkflow:
		return nil, usagef("%s is too large", name)
	}
	return data, nil
}

// workflow is a workflow with the changes that the user wants.
type workflow struct {
	graph *pyjson.Object
	// raw is the text, as long as nothing is changed in it.
	raw []byte
}

// readWorkflow reads a workflow of either format.
func readWorkflow(data []byte) (*workflow, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // some editors write it
	v, err := pyjson.Parse(data)
	if err != nil {
		return nil, usagef("the workflow is not JSON: %w", err)
	}
	graph, ok := v.(*pyjson.Object)
	if !ok {
		return nil, usagef("the workflow is not a JSON object")
	}
	return &workflow{graph, data}, nil
}

// set changes an input as "6.text=a fox" says: the node's id or title, the input's name, and
// the value. The value is of the kind that the input has; after := instead of = it is JSON.
func (w *workflow) set(change string) error {
	key, text, ok := strings.Cut(change, "=")
	if !ok {
		return usagef("--set %s: must be NODE.INPUT=VALUE", change)
	}
	key, isJSON := strings.CutSuffix(key, ":")
	inputs, name, err := w.input(key)
	if err != nil {
		return usagef("--set %s: %w", change, err)
	}
	old, _ := inputs.Get(name)
	value, err := valueLike(old, text, isJSON)
	if err != nil {
		return usagef("--set %s: %w", change, err)
	}
	inputs.Set(name, value)
	w.raw = nil
	return nil
}

// valueLike reads a value that takes the place of another one.
func valueLike(old pyjson.Value, text string, isJSON bool) (pyjson.Value, error) {
	if _, isText := old.(pyjson.String); isText && !isJSON {
		return pyjson.String(text), nil
	}
	value, err := pyjson.Parse([]byte(text))
	if isJSON {
		if err != nil {
			return nil, fmt.Errorf("after := there must be JSON: %w", err)
		}
		return value, nil
	}
	fits := false
	switch old.(type) {
	case pyjson.Number:
		if _, fits = value.(pyjson.Number); !fits {
			return nil, fmt.Errorf("must be a number; use := for other JSON")
		}
	case pyjson.Bool:
		if _, fits = value.(pyjson.Bool); !fits {
			return nil, fmt.Errorf("must be true or false; use := for other JSON")
		}
	default: // a link, or nothing yet
		switch value.(type) {
		case pyjson.Number, pyjson.Bool:
			fits = err == nil
		}
	}
	if fits {
		return value, nil
	}
	return pyjson.String(text), nil
}

// embed puts a file into an input, as "10.image=cat.png" says. The hub stores it as an
// upload.
func (w *workflow) embed(change string) error {
	key, name, ok := strings.Cut(change, "=")
	if !ok || name == "" || name == "-" {
		return usagef("--file %s: must be NODE.INPUT=FILE", change)
	}
	inputs, input, err := w.input(key)
	if err != nil {
		return usagef("--file %s: %w", change, err)
	}
	data, err := readFile(name, nil)
	if err != nil {
		return err
	}
	kind, _, _ := strings.Cut(http.DetectContentType(data), ";")
	inputs.Set(input, pyjson.String("data:"+kind+";base64,"+base64.StdEncoding.EncodeToString(data)))
	w.raw = nil
	return nil
}

// input finds the input that a key such as 6.text names.
func (w *workflow) input(key string) (inputs *pyjson.Object, name string, err error) {
	if w.graph.Array("nodes") != nil {
		return nil, "", fmt.Errorf("the workflow is in the web UI's own format; changes need the API format (Export (API) in the web UI)")
	}
	id, rest, ok := strings.Cut(key, ".")
	node := w.graph.Object(id)
	if !ok || node == nil {
		if id, rest, node, err = w.titled(key); err != nil {
			return nil, "", err
		}
	}
	inputs = node.Object("inputs")
	if !inputs.Has(rest) {
		names := slices.DeleteFunc(inputs.Keys(), func(n string) bool { return n == "" })
		return nil, "", fmt.Errorf("node %s (%s) has no input %q, but: %s", printable(id), printable(node.String("class_type")), rest, printable(strings.Join(names, ", ")))
	}
	return inputs, rest, nil
}

// titled finds the one node whose title a key begins with.
func (w *workflow) titled(key string) (id, rest string, node *pyjson.Object, err error) {
	for n, v := range w.graph.All() {
		o, _ := v.(*pyjson.Object)
		title := o.Object("_meta").String("title")
		after, ok := strings.CutPrefix(key, title+".")
		switch {
		case title == "" || !ok:
		case node != nil:
			return "", "", nil, fmt.Errorf("nodes %s and %s have this title: use an id", printable(id), printable(n))
		default:
			id, rest, node = n, after, o
		}
	}
	if node == nil {
		return "", "", nil, fmt.Errorf("the workflow has no such node")
	}
	return id, rest, node, nil
}

// order is the body of POST /submit with this workflow.
func (w *workflow) order(priority int, band, key string) []byte {
	raw := w.raw
	if raw == nil {
		raw = pyjson.Marshal(w.graph)
	}
	out := append([]byte(`{"workflow": `), raw...)
	more := pyjson.NewObject(pyjson.Member{Key: "idempotency_key", Value: pyjson.String(key)})
	if priority != 0 {
		more.Set("priority", pyjson.Int(int64(priority)))
	}
	if band != "" {
		more.Set("band", pyjson.String(band))
	}
	out = append(out, ", "...)
	return append(out, pyjson.Marshal(more)[1:]...)
}
