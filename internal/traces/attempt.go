package traces

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Step is a part of an attempt. One begins when the one before it ends.
type Step string

// The steps, in their order.
const (
	// Claim: the job is given to the instance, and read from the queue.
	Claim Step = "comfyhub.claim"
	// Inputs: the files that the prompt names are copied to the instance.
	Inputs Step = "comfyhub.inputs"
	// Submit: the prompt is posted to the instance.
	Submit Step = "comfyhub.submit"
	// Run: the instance has the prompt. It may have to finish another one first.
	Run Step = "comfyhub.run"
	// Collect: the instance has finished, and the hub copies the outputs.
	Collect Step = "comfyhub.collect"
	// Finish: the end is written to the queue.
	Finish Step = "comfyhub.finish"
)

// Attempt is the span of one attempt at a job, with a child for each step. Its methods may
// be called on nil, but only by one goroutine at a time.
type Attempt struct {
	tracer trace.Tracer
	ctx    context.Context //nolint:containedctx // it carries the span, and nothing ends with it
	span   trace.Span
	step   trace.Span // nil before the first
	now    Step
	// known says that there is an outcome.
	known, ended bool
}

// Enter begins a step, at a time that may have passed, and ends the one before it. It does
// nothing if the attempt is in that step.
func (a *Attempt) Enter(s Step, at time.Time) {
	if a == nil || a.ended || a.now == s {
		return
	}
	a.leave(at)
	_, a.step = a.tracer.Start(a.ctx, string(s), trace.WithTimestamp(at))
	a.now = s
}

func (a *Attempt) leave(at time.Time) {
	if a.step != nil {
		a.step.End(trace.WithTimestamp(at))
	}
}

// Started notes that the instance executes the prompt.
func (a *Attempt) Started() {
	if a != nil {
		a.span.AddEvent("started")
	}
}

// Outcome notes what has become of the attempt; the last one counts. failed says that it is
// an error.
func (a *Attempt) Outcome(outcome string, failed bool) {
	if a == nil {
		return
	}
	a.known = true
	a.span.SetAttributes(attribute.String("comfyhub.outcome", outcome))
	if failed {
		a.span.SetStatus(codes.Error, outcome)
	}
}

// Retried notes that the job waits again, and why.
func (a *Attempt) Retried(cause string) {
	if a != nil {
		a.span.AddEvent("retried", trace.WithAttributes(attribute.String("comfyhub.cause", cause)))
	}
}

// End ends the attempt. Without an outcome, another hub has the run, or will have it. It may
// be called again.
func (a *Attempt) End() {
	if a == nil || a.ended {
		return
	}
	if !a.known {
		a.Outcome("left", false)
	}
	a.ended = true
	now := time.Now()
	a.leave(now)
	a.span.End(trace.WithTimestamp(now))
}
