package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/traces"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func traced(s *queue.Submission) { s.Body.Trace = traceparent }

// kept are the spans that a dispatcher has made.
type kept struct{ *tracetest.InMemoryExporter }

func tracing() (kept, func(*dispatching, *Config)) {
	k := kept{tracetest.NewInMemoryExporter()}
	tracer := traces.New(sdk.NewTracerProvider(sdk.WithSyncer(k)))
	return k, func(_ *dispatching, c *Config) { c.Traces = func() *traces.Tracer { return tracer } }
}

// attempts waits for count attempts and returns them in the order in which they ended.
func (k kept) attempts(t *testing.T, count int) (found tracetest.SpanStubs) {
	eventually(t, func() bool {
		found = nil
		for _, s := range k.GetSpans() {
			if s.Name == "comfyhub.attempt" {
				found = append(found, s)
			}
		}
		return len(found) >= count
	}, deadline, 10*time.Millisecond)
	require.Len(t, found, count)
	return found
}

// steps returns the names of the children of an attempt, in the order in which they ended.
func (k kept) steps(attempt tracetest.SpanStub) (names []string) {
	for _, s := range k.GetSpans() {
		if s.Parent.SpanID() == attempt.SpanContext.SpanID() {
			names = append(names, s.Name[len("comfyhub."):])
		}
	}
	return names
}

func attributes(s tracetest.SpanStub) map[string]any {
	out := map[string]any{}
	for _, a := range s.Attributes {
		out[string(a.Key)[len("comfyhub."):]] = a.Value.AsInterface()
	}
	return out
}

func events(s tracetest.SpanStub) (names []string) {
	for _, e := range s.Events {
		name := e.Name
		for _, a := range e.Attributes {
			name += " " + a.Value.AsString()
		}
		names = append(names, name)
	}
	return names
}

func TestSpansOfAJob(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		k, on := tracing()
		b := newDispatching(t, 1, on)
		b.reaches(b.submit(picture), job.Done)
		key := b.submit(picture, traced)
		b.reaches(key, job.Done)
		a := k.attempts(t, 1)[0]
		require.Equal(t, traceparent[36:52], a.Parent.SpanID().String())
		require.Equal(t, traceparent[3:35], a.SpanContext.TraceID().String())
		require.Equal(t, map[string]any{
			"job": key, "instance": b.instances[0].name, "attempt": int64(1), "node_classes": int64(1), "outcome": "done",
		}, attributes(a))
		require.Equal(t, []string{"claim", "inputs", "submit", "run", "collect", "finish"}, k.steps(a))
		require.Equal(t, []string{"started"}, events(a))
		require.Len(t, k.GetSpans(), 8, "with the wait, and none of the prompt that is not traced")
		wait := k.GetSpans()[0]
		require.Equal(t, "comfyhub.queue", wait.Name)
		require.Equal(t, a.StartTime, wait.EndTime)
	})
}

func TestSpansOfALostRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		k, on := tracing()
		b := newDispatching(t, 1, on)
		key := b.submit(endless, traced)
		b.runs(key)
		b.instances[0].Kill()
		b.instances[0].Restart()
		lost := k.attempts(t, 1)[0]
		require.Equal(t, "lost", attributes(lost)["outcome"])
		require.Equal(t, []string{"started", "retried died"}, events(lost))
		b.reaches(key, job.Running)
		b.Runs.Cancel(key)
		again := k.attempts(t, 2)[1]
		require.Equal(t, "cancelled", attributes(again)["outcome"])
		require.Equal(t, int64(2), attributes(again)["attempt"])
		require.Len(t, k.GetSpans().Snapshots(), 1+2+len(k.steps(lost))+len(k.steps(again)), "only the first has a wait")
	})
}

func TestSpansOfATakenOverRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		k, on := tracing()
		b := newDispatching(t, 1, on)
		key := b.submit(endless, traced)
		b.runs(key)
		b.restart("hub/2")
		require.Equal(t, "left", attributes(k.attempts(t, 1)[0])["outcome"])
		eventually(t, func() bool { return b.Runs.Get(key) != nil }, deadline, 10*time.Millisecond)
		b.connects(1) // a cancel does not wait long for an instance that cannot be reached
		b.cancels(key)
		adopted := k.attempts(t, 2)[1]
		require.Equal(t, []string{"adopted own", "started"}, events(adopted))
		require.Equal(t, []string{"run", "collect", "finish"}, k.steps(adopted))
		require.Equal(t, traceparent[3:35], adopted.SpanContext.TraceID().String())
	})
}

func TestSpanOfAJobThatNobodyCanRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		k, on := tracing()
		b := newDispatching(t, 1, on)
		b.set(func(s *Settings) { s.UnrunnableTimeout = time.Millisecond })
		needs := catalog.Requirements{Classes: []string{"NoSuchClass"}}
		key := b.submit(picture, traced, func(s *queue.Submission) { s.Class, s.Body.Requires = needs.Signature(), needs.Encode() })
		b.reaches(key, job.Failed)
		eventually(t, func() bool { return len(k.GetSpans()) == 1 }, deadline, 10*time.Millisecond)
		span := k.GetSpans()[0]
		require.Equal(t, "comfyhub.queue", span.Name)
		require.Equal(t, map[string]any{"job": key, "outcome": "failed"}, attributes(span))
	})
}
