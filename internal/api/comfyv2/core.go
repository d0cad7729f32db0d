package comfyv2

import (
	"context"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/links"
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
		Look(ctx context.Context, tenant, id string) (view.FoundJob, error)
		Outcome(ctx context.Context, j job.Job) (view.Packed, error)
	}
	Watches interface {
		Watch(j job.Job) (news <-chan job.Job, stop func())
	}
	Insight interface {
		Job(ctx context.Context, v view.Viewer, id string) (view.JobView, error)
		Positions(ctx context.Context, jobs ...job.Job) []int
		Doing(j job.Job) view.Doing
	}
	Links interface {
		File(ctx context.Context, tenant string, ref job.FileRef) (links.File, error)
	}
	// Uploads has the assets.
	Uploads *files.Uploads
	View    interface {
		ServeFile(w http.ResponseWriter, r *http.Request, tenant string, ref job.FileRef) error
	}
}
