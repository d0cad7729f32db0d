package worker

import (
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ErrOutput means that an output cannot be taken as it is. Its text is for the worker.
var ErrOutput = errors.New("worker")

// Reason is the text of an [ErrOutput].
func Reason(err error) string { return strings.TrimPrefix(err.Error(), ErrOutput.Error()+": ") }

// extension is that of a file name. It says what a file is.
var extension = regexp.MustCompile(`^\.[A-Za-z0-9]{1,8}$`)

// Save stores an output file of a job, by default of its first output node. Only the
// name's extension counts: files are named as ComfyUI does, after the node's filename_prefix.
// The error is also [ErrOutput].
func (w *Worker) Save(id, node, name string, content io.Reader) error {
	return w.during(id, func(t *task) error {
		node, err := t.nodeOf(node)
		if err != nil {
			return err
		}
		ext := path.Ext(name)
		if !extension.MatchString(ext) {
			return fmt.Errorf("%w: filename: must end with an extension such as .png", ErrOutput)
		}
		w.mu.Lock()
		t.files++
		full := t.files > maxFiles
		w.mu.Unlock()
		if full {
			return fmt.Errorf("%w: a job may have %d files", ErrOutput, maxFiles)
		}
		return t.run.Save(node, facade.OutputPrefix(t.run.Graph.Object(node)), ext, counted{content, &t.left})
	})
}

// counted is a file that counts for what all files of a job may have.
type counted struct {
	io.Reader

	left *atomic.Int64
}

// Read implements [io.Reader].
func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.left.Add(int64(-n)) < 0 {
		return n, fmt.Errorf("%w: the files of a job may have %d bytes together", ErrOutput, int64(maxBytes))
	}
	return n, err
}

// nodeOf returns the node that outputs are of.
func (t *task) nodeOf(node string) (string, error) {
	switch {
	case node == "":
		return t.run.Outputs[0], nil
	case t.run.Class(node) == "":
		return "", fmt.Errorf("%w: node: the workflow has no node %q", ErrOutput, node)
	}
	return node, nil
}

// Complete ends a job that has succeeded. A result with outputs says what output nodes show,
// by node, besides the files that were uploaded; any other one is shown as it is, by the first
// of them. The error is also [ErrOutput], and the worker still holds the job then.
func (w *Worker) Complete(id string, result pyjson.Value) error {
	return w.during(id, func(t *task) error {
		if err := t.run.Show(t.shownIn(result)); err != nil {
			return fmt.Errorf("%w: result: outputs: %w", ErrOutput, err)
		}
		return w.conclude(t, nil)
	})
}

// shownIn is what output nodes show of a result, by node.
func (t *task) shownIn(result pyjson.Value) *pyjson.Object {
	switch v := result.(type) {
	case nil, pyjson.Null:
		return nil
	case *pyjson.Object:
		if outputs := v.Object("outputs"); outputs != nil {
			return outputs
		}
		if v.Len() == 0 {
			return nil
		}
	}
	shown := pyjson.NewObject(pyjson.Member{Key: "result", Value: pyjson.Array{result}})
	return pyjson.NewObject(pyjson.Member{Key: t.run.Outputs[0], Value: shown})
}

// Fail ends a job that has failed.
func (w *Worker) Fail(id string, failure facade.Failure) error {
	return w.during(id, func(t *task) error { return w.conclude(t, &failure) })
}

// conclude ends a job that the worker has held a moment ago.
func (w *Worker) conclude(t *task, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.task != t || !t.held {
		return ErrNotHeld
	}
	w.end(t, err)
	return nil
}
