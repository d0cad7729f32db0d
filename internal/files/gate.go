package files

import (
	"context"
	"io"

	"gocloud.dev/blob"
)

// Gate stands between a hub and its storage, as a simulated disk. It is asked before each step, may
// hold the step up, and may make it fail. For a write, bytes is how much comes next.
type Gate func(ctx context.Context, step Step, bytes int) error

// Step is a part of a request to a storage.
type Step string

// The steps of requests. A write begins, writes, and, in a folder, gets its name once everything is
// there; then the name is made to last.
const (
	StepRead   Step = "read"
	StepWrite  Step = "write"
	StepName   Step = "rename"
	StepKeep   Step = "sync"
	StepDelete Step = "delete"
	StepList   Step = "list"
)

// Behind puts a gate in front of the storage. It must be called before the first request.
func (s *Storage) Behind(g Gate) { s.backend.gate = g }

// pass asks the gate, if there is one.
func (g Gate) pass(ctx context.Context, step Step, bytes int) error {
	if g == nil {
		return nil
	}
	return g(ctx, step, bytes)
}

// gated is a reader or a writer of one blob, behind the gate.
type gated struct {
	io.ReadCloser
	io.Writer

	gate Gate
	ctx  context.Context
	size int64 // of the blob that is read
}

// Size is that of the whole blob, in bytes.
func (g gated) Size() int64 { return g.size }

// Read implements [io.Reader].
func (g gated) Read(p []byte) (int, error) {
	if err := g.gate.pass(g.ctx, StepRead, len(p)); err != nil {
		return 0, err
	}
	return g.ReadCloser.Read(p)
}

// Write implements [io.Writer].
func (g gated) Write(p []byte) (int, error) {
	if err := g.gate.pass(g.ctx, StepWrite, len(p)); err != nil {
		return 0, err
	}
	return g.Writer.Write(p)
}

// reader puts a reader behind the gate.
func (g Gate) reader(ctx context.Context, r *blob.Reader) io.ReadCloser {
	if g == nil {
		return r
	}
	return gated{ReadCloser: r, gate: g, ctx: ctx, size: r.Size()}
}

// writer puts a writer behind the gate.
func (g Gate) writer(ctx context.Context, w io.Writer) io.Writer {
	if g == nil {
		return w
	}
	return gated{Writer: w, gate: g, ctx: ctx}
}
