package sdapi

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/userdata"
	"github.com/comfyhub/comfyhub/internal/view"
)

// Core is what the room needs of a hub.
type Core struct {
	Settings  *config.Settings
	Users     *userdata.Store
	Submitter interface {
		Submit(ctx context.Context, s submit.Submission, answer func(submit.Accepted, error))
	}
	Canceller interface {
		Cancel(ctx context.Context, tenant, id string) (bool, error)
		Stop(ctx context.Context, j job.Job) error
	}
	Jobs interface {
		Find(ctx context.Context, tenant, id string) (job.Job, error)
		LiveOf(ctx context.Context, tenant string, owner job.Owner) ([]job.Job, error)
		Ended(ctx context.Context, tenant string) ([]view.EndedJob, error)
		Outcome(ctx context.Context, j job.Job) (view.Packed, error)
	}
	Watches interface {
		Watch(j job.Job) (news <-chan job.Job, stop func())
	}
	Insight interface {
		Job(ctx context.Context, v view.Viewer, id string) (view.JobView, error)
	}
	Links interface {
		File(ctx context.Context, tenant string, ref job.FileRef) (links.File, error)
	}
	Classes interface {
		Known(class string) *pyjson.Object
	}
	Servers interface {
		A1111(tenant string) []*comfyui.Client
		ClientOf(instance string) *comfyui.Client
		Doubt(server *comfyui.Client)
	}
}
