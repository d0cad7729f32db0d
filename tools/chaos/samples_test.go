package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLeaksOfDescriptorsAndGoroutines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after usage
		grown         string
	}{
		"the same":                 {usage{files: 50, goroutines: 80}, usage{files: 50, goroutines: 80}, ""},
		"twice and some":           {usage{files: 50, goroutines: 80}, usage{files: 164, goroutines: 224}, ""},
		"descriptors":              {usage{files: 50, goroutines: 80}, usage{files: 165, goroutines: 80}, "165 descriptors, 50 at the start"},
		"goroutines":               {usage{files: 50, goroutines: 80}, usage{files: 50, goroutines: 225}, "225 goroutines, 80 at the start"},
		"both":                     {usage{files: 1, goroutines: 1}, usage{files: 100, goroutines: 100}, "100 descriptors, 1 at the start; 100 goroutines, 1 at the start"},
		"unknown at the start":     {usage{files: 50}, usage{files: 50, goroutines: 500}, ""},
		"memory that was returned": {usage{resident: 100 << 20}, usage{resident: 10 << 20}, ""},
	} {
		require.Equal(t, c.grown, grown(c.before, c.after), name)
	}
}

func TestSamplesMakeATable(t *testing.T) {
	t.Parallel()
	var l samples
	l.add("start", map[string]usage{"redis": {resident: 10 << 20, files: 20}, "hub-1": {resident: 70 << 20, files: 50, goroutines: 80}})
	ctx, cancel := context.WithCancel(t.Context())
	tick := make(chan time.Time, 2)
	tick <- time.Now()
	measured := 0
	go func() { // the second measurement is cut short
		tick <- time.Now()
	}()
	l.watch(ctx, tick, func(context.Context) map[string]usage {
		if measured++; measured == 2 {
			cancel()
		}
		return map[string]usage{"hub-1": {resident: 75 << 20, peak: 90 << 20, files: 55, goroutines: 85}}
	})
	require.Equal(t, 2, measured)
	var b strings.Builder
	l.print(&b, []string{"redis", "hub-1"})
	require.Equal(t, `resident MB / descriptors / goroutines of hubs; a dash is a program that was down

| when | redis | hub-1 |
| --- | --- | --- |
| start | 10 / 20 | 70 / 50 / 80 |
| 0.0 min | - | 75 / 55 / 85 |
| peak since its last start, MB | 0 | 90 |
`, b.String())
}
