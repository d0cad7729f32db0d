package overflow

import (
	"context"
	"errors"
	"time"
)

// Remote is an endpoint that runs workflows.
type Remote interface {
	// Start asks for a run and returns its id there. The error is a *[RefusedError] if there certainly
	// is none, or wraps [ErrUnclear].
	Start(ctx context.Context, r Request) (id string, err error)
	// Status tells how a run is doing. The error wraps [ErrNoRun] if the endpoint does not know it.
	Status(ctx context.Context, id string) (Answer, error)
	// Cancel ends a run, if it has not ended.
	Cancel(ctx context.Context, id string) error
	// Health says what is wrong with the endpoint as a whole, nil if nothing is.
	Health(ctx context.Context) error
	// Repeats reports whether Start may be repeated with the same key: there is one run for it.
	Repeats() bool
}

// Request is what is to be run.
type Request struct {
	// Key names the run.
	Key string
	// Workflow is the graph, as JSON. Outputs are the ids of its output nodes.
	Workflow []byte
	Outputs  []string
	// Files are the input files that it names.
	Files []InputFile
	// APIKey is the key for Comfy's paid nodes, empty for none.
	APIKey string
	// Timeout bounds the run once it has begun, and Lifetime with its wait.
	Timeout, Lifetime time.Duration
}

// InputFile is a file that a graph names, in base64.
type InputFile struct{ Name, Base64 string }

var (
	// ErrUnclear means that nobody knows whether there is a run.
	ErrUnclear = errors.New("overflow: it is not known whether the endpoint has taken the run")
	// ErrNoRun means that an endpoint does not know a run.
	ErrNoRun = errors.New("overflow: the endpoint does not know the run")
)

// RefusedError says that there is no run.
type RefusedError struct {
	Reason string
	// Endpoint says that this is not because of the request: another one would fare no better now.
	Endpoint bool
}

func (e *RefusedError) Error() string { return e.Reason }

// State is that of a run.
type State int

// The states. A run has ended from Done on.
const (
	Queued State = iota
	Running
	Done
	Failed
	Cancelled
	TimedOut
)

// Ended reports whether a run in this state has ended.
func (s State) Ended() bool { return s >= Done }

// Answer is what an endpoint says about a run.
type Answer struct {
	State State
	// Node is the one that runs, empty if that is not known, and Progress how far the run is, from 0 to
	// 1; negative if that is not known.
	Node     string
	Progress float64
	// Took is the time that is paid for, zero if that is not known.
	Took time.Duration
	// Cost is what the run has cost, negative if the endpoint does not say.
	Cost float64
	// Reason says why a run has failed.
	Reason string
	Files  []OutputFile
}

// OutputFile is a file that a run has made: in base64, or at a URL.
type OutputFile struct {
	// Node is the output node, empty if that is not known.
	Node string
	Name string
	// Base64 may be a data URI. It is empty if URL is not.
	Base64, URL string
}
