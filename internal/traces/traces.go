// Package traces makes OpenTelemetry spans of the life of jobs, as children of the span
// of the request that has posted the prompt. Off is the nil *Tracer and the nil *Attempt:
// their methods do nothing and cost nothing. Only this package knows OpenTelemetry.
package traces

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name under which the spans are made.
const scope = "github.com/comfyhub/comfyhub"

// parentSize is the length of a traceparent of version 00, the only one that is kept.
const parentSize = len("00-00000000000000000000000000000000-0000000000000000-01")

// Tracer makes spans. Its methods may be called on nil, and by several goroutines.
type Tracer struct {
	tracer trace.Tracer
	close  func(context.Context) error
}

// Open returns a Tracer that exports as the OTEL_* variables of the environment say; without
// any, over OTLP to localhost:4318. It dials nothing yet. What the collector does not take
// is dropped. version is that of the hub. An error means that the environment is not valid.
func Open(ctx context.Context, version string) (*Tracer, error) {
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "comfyhub"), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv()) // a name in the environment wins
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return &Tracer{tracer: provider.Tracer(scope), close: provider.Shutdown}, nil
}

// New returns a Tracer with a provider of the caller's, which its Close leaves open.
func New(p trace.TracerProvider) *Tracer {
	return &Tracer{tracer: p.Tracer(scope), close: func(context.Context) error { return nil }}
}

// Close exports what is left, until ctx ends. Spans that end later are dropped.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.close(ctx)
}

// Parent returns the traceparent of the span that ctx carries; empty if there is none, or if
// it is not sampled.
func (t *Tracer) Parent(ctx context.Context) string {
	if t == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Start is what is known when an attempt at a job begins. It names no user and nothing
// that a client has sent.
type Start struct {
	// Parent is what Parent has returned when the prompt was posted.
	Parent string
	// Key is the hub's own name for the job.
	Key string
	// Accepted is when the queue has taken the job; zero for an attempt before which the
	// job did not only wait.
	Accepted time.Time
	// At is when this hub has begun with the attempt.
	At time.Time
	// Instance runs it, as attempt number Attempt.
	Instance string
	Attempt  int
	// Classes counts the node classes of the graph.
	Classes int
	// Adopted is what the run was taken over from; empty for one that this hub has begun.
	Adopted string
}

// Begin starts the spans of an attempt; nil if its prompt is not traced.
func (t *Tracer) Begin(s Start) *Attempt {
	ctx, on := t.under(s.Parent)
	if !on {
		return nil
	}
	about := trace.WithAttributes(
		attribute.String("comfyhub.job", s.Key), attribute.String("comfyhub.instance", s.Instance),
		attribute.Int("comfyhub.attempt", s.Attempt), attribute.Int("comfyhub.node_classes", s.Classes))
	if !s.Accepted.IsZero() {
		t.wait(ctx, s).End(trace.WithTimestamp(s.At))
	}
	ctx, span := t.tracer.Start(ctx, "comfyhub.attempt", trace.WithTimestamp(s.At), about)
	if s.Adopted != "" {
		span.AddEvent("adopted", trace.WithTimestamp(s.At), trace.WithAttributes(attribute.String("comfyhub.from", s.Adopted)))
	}
	return &Attempt{tracer: t.tracer, ctx: ctx, span: span}
}

// Failed makes the span of a job that has failed without an attempt, At the end of its wait.
func (t *Tracer) Failed(s Start) {
	ctx, on := t.under(s.Parent)
	if !on {
		return
	}
	span := t.wait(ctx, s)
	span.SetAttributes(attribute.String("comfyhub.outcome", "failed"))
	span.SetStatus(codes.Error, "failed")
	span.End(trace.WithTimestamp(s.At))
}

// under returns a context with a parent, or false if there are to be no spans.
func (t *Tracer) under(parent string) (context.Context, bool) {
	if t == nil || len(parent) != parentSize {
		return nil, false
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent})
	return ctx, trace.SpanContextFromContext(ctx).IsSampled()
}

// wait begins the span of the time before the first attempt.
func (t *Tracer) wait(ctx context.Context, s Start) trace.Span {
	from := s.Accepted
	if from.After(s.At) {
		from = s.At // Redis's clock may be ahead of ours
	}
	_, span := t.tracer.Start(ctx, "comfyhub.queue", trace.WithTimestamp(from), trace.WithAttributes(attribute.String("comfyhub.job", s.Key)))
	return span
}
