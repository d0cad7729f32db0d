package plain

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/view"
)

// Core is what the room needs of a hub.
type Core struct {
	Settings  *config.Settings
	Submitter interface {
		Submit(ctx context.Context, s submit.Submission, answer func(submit.Accepted, error))
	}
	Canceller interface {
		Cancel(ctx context.Context, tenant, id string) (bool, error)
	}
	Jobs interface {
		Live(ctx context.Context, tenant string) ([]job.Job, error)
		Ended(ctx context.Context, tenant string) ([]view.EndedJob, error)
		Outcome(ctx context.Context, j job.Job) (view.Packed, error)
	}
	Watches interface {
		Watch(j job.Job) (news <-chan job.Job, stop func())
	}
	Insight interface {
		Job(ctx context.Context, v view.Viewer, id string) (view.JobView, error)
	}
	Classes interface {
		Await(ctx context.Context, share string) error
		Known(class string) *pyjson.Object
	}
}
