package facade

import (
	"context"
	"io"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Backend does the work of a server. One that is an [http.Handler], too, answers the
// requests for paths that are no routes of the server.
type Backend interface {
	// ObjectInfo is the answer of GET /object_info: the node classes that the backend
	// runs.
	ObjectInfo() []byte
	// About describes the backend.
	About() About
	// Execute runs a prompt. It ends early when ctx ends: the prompt was interrupted. The
	// error is a *[Failure], or is shown as one of the first output node.
	Execute(ctx context.Context, r *Run) error
}

// outputJudge is a [Backend] that runs classes which it does not describe.
type outputJudge interface {
	// IsOutput reports whether nodes of a class are output nodes.
	IsOutput(class string) bool
}

// About is what GET /system_stats says about a backend.
type About struct {
	// Version is the version of ComfyUI whose protocol hubs should expect.
	Version string
	// Device is the name of the GPU, empty for none.
	Device string
	// VRAMTotal and VRAMFree are in bytes.
	VRAMTotal, VRAMFree int64
}

// Failure is the error of a node.
type Failure struct {
	Node string
	// Type is the name of a Python exception, such as RuntimeError.
	Type, Message string
	// Details are further members of the message about it; nil for none.
	Details *pyjson.Object
}

// Error implements error.
func (f *Failure) Error() string { return f.Type + ": " + f.Message }

// Prompt is what is to be run.
type Prompt struct {
	ID string
	// Number is the place in the server's queue.
	Number int64
	// Graph maps ids to nodes, Extra is its extra_data.
	Graph, Extra *pyjson.Object
	// Outputs are the ids of the output nodes.
	Outputs []string

	client string
}

// Class returns the class of a node, empty for no node.
func (p *Prompt) Class(node string) string { return p.Graph.Object(node).String("class_type") }

// Run is a prompt that runs. Its methods are safe for concurrent use.
type Run struct {
	Prompt
	server  *Server
	state   *running
	outputs *pyjson.Object
}

// Progress tells how far a node is.
func (r *Run) Progress(node string, value, most float64) { r.server.progress(r, node, value, most) }

// Preview shows a picture of what a node is doing, in JPEG.
func (r *Run) Preview(jpeg []byte) { r.server.preview(r, jpeg) }

// Input opens a file that the prompt names; the name is as in a LoadImage.
func (r *Run) Input(name string) (io.ReadCloser, error) { return r.server.files.openInput(name) }

// Save stores an output of a node: a picture, or any other file by its extension. name is
// the first part of its name.
func (r *Run) Save(node, name, extension string, content io.Reader) error {
	return r.server.save(r, node, name, extension, content)
}

// Show adds to what output nodes show, by node, besides files: lists such as texts. It adds
// all of it or nothing.
func (r *Run) Show(outputs *pyjson.Object) error { return r.server.show(r, outputs) }

// Inputs are the input files that the prompt names and that are there, as [Run.Input] opens
// them.
func (r *Run) Inputs() []string { return r.server.files.inputsOf(r.Graph) }
