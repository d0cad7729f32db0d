package run

import (
	"log/slog"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
)

// testRun returns a run on no instance, of a runner with some of what runs work with.
func testRun(around Around, j job.Job) *Run {
	if around.Logger == nil {
		around.Logger = slog.New(slog.DiscardHandler)
	}
	return NewRunner(around).New(nil, j)
}

func linkTo(name string, registry *fleet.Registry) *instance.Link {
	return instance.NewLink(fleet.Instance{Name: name}, registry, &instance.FreeSets{}, slog.New(slog.DiscardHandler))
}

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
