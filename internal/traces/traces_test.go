package traces

import (
	"context"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func recording() (*Tracer, *tracetest.InMemoryExporter) {
	kept := tracetest.NewInMemoryExporter()
	return New(sdk.NewTracerProvider(sdk.WithSyncer(kept))), kept
}

// with returns a context as Caddy's tracing leaves it.
func with(flags trace.TraceFlags) context.Context {
	id, _ := hex.DecodeString("0af7651916cd43dd8448eb211c80319c")
	span, _ := hex.DecodeString("b7ad6b7169203331")
	return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(id), SpanID: trace.SpanID(span), TraceFlags: flags,
	}))
}

func TestParent(t *testing.T) {
	t.Parallel()
	tracer, _ := recording()
	require.Equal(t, parent, tracer.Parent(with(trace.FlagsSampled)))
	require.Empty(t, tracer.Parent(with(0)), "it is not sampled")
	require.Empty(t, tracer.Parent(context.Background()))
	var off *Tracer
	require.Empty(t, off.Parent(with(trace.FlagsSampled)))
}

func TestBegin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, parent string
		spans        bool
	}{
		{"sampled", parent, true},
		{"none", "", false},
		{"not sampled", parent[:len(parent)-1] + "0", false},
		{"no trace", "00-00000000000000000000000000000000-b7ad6b7169203331-01", false},
		{"no hex", "00-0af7651916cd43dd8448eb211c80319x-b7ad6b7169203331-01", false},
		{"too long", parent + "-more", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tracer, kept := recording()
			a := tracer.Begin(Start{Parent: c.parent, At: time.Now()})
			require.Equal(t, c.spans, a != nil)
			a.End()
			require.Equal(t, c.spans, len(kept.GetSpans()) == 1)
		})
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	tracer, kept := recording()
	at := time.Now().Add(-time.Hour)
	a := tracer.Begin(Start{Parent: parent, Accepted: at.Add(time.Second), At: at})
	a.Enter(Claim, at)
	a.Enter(Run, at.Add(time.Minute))
	a.Enter(Run, at.Add(2*time.Minute))
	a.Outcome("lost", true)
	a.Outcome("done", false)
	a.End()
	a.Enter(Finish, at)
	a.End()
	var names []string
	for _, s := range kept.GetSpans() {
		names = append(names, s.Name)
		require.Equal(t, parent[3:35], s.SpanContext.TraceID().String())
		require.False(t, s.EndTime.Before(s.StartTime), "Redis's clock may be ahead")
	}
	require.Equal(t, []string{"comfyhub.queue", "comfyhub.claim", "comfyhub.run", "comfyhub.attempt"}, names)
	require.Equal(t, time.Minute, kept.GetSpans()[1].EndTime.Sub(at))
}

// Without tracing nothing is spent.
func TestOffCostsNothing(t *testing.T) {
	var off *Tracer
	ctx, at := with(trace.FlagsSampled), time.Now()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		a := off.Begin(Start{Parent: off.Parent(ctx), At: at})
		for _, s := range []Step{Claim, Inputs, Submit, Run, Collect, Finish} {
			a.Enter(s, at)
		}
		a.Started()
		a.Retried("died")
		a.Outcome("done", false)
		a.End()
	}))
	require.NoError(t, off.Close(ctx))
}

// Whatever another hub has stored, a parent is valid or there are no spans.
func FuzzBegin(f *testing.F) {
	f.Add(parent)
	f.Add("01" + parent[2:])
	tracer, kept := recording()
	f.Fuzz(func(t *testing.T, stored string) {
		kept.Reset()
		tracer.Begin(Start{Parent: stored}).End()
		for _, s := range kept.GetSpans() {
			require.True(t, s.Parent.IsValid() && s.Parent.IsSampled())
		}
	})
}
