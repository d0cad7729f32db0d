package comfy

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/classes"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/ends"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/lastknown"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/userdata"
	"github.com/comfyhub/comfyhub/internal/view"
	"github.com/comfyhub/comfyhub/internal/webui"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

// Core is what the room needs of a hub: all that ComfyUI does itself.
type Core struct {
	Settings  *config.Settings
	Submitter *submit.Submitter
	Canceller *submit.Canceller
	Jobs      *view.Jobs
	Ends      *ends.Ends
	Streams   *stream.Streams
	Classes   *classes.Classes
	Insight   *view.Insight
	Folders   *view.Folders
	Logs      *view.Logs
	Uploads   *files.Uploads
	View      *files.View
	Held      *files.Held
	Users     *userdata.Store
	WebUI     *webui.Files
	LastKnown *lastknown.Answers
	// Fleet lists the instances, connected or not.
	Fleet interface{ Instances() []fleet.Instance }
	// Instances are the connected ones.
	Instances Instances
}

// Instances are the connected instances, as calls find them.
type Instances interface {
	// Version is the one that all of them support, not Known without any.
	Version() comfyui.Version
	Features() []byte
	Clients() []*comfyui.Client
	ClientOf(instance string) *comfyui.Client
	ClientFor(tenant string, clients []string) *comfyui.Client
	Holders(v view.Viewer, clients []string, id string) []*comfyui.Client
	// Primary is the one that the page comes from, PageSources are those that it may come from.
	Primary() *comfyui.Client
	PageSources() []origin.Source
	MayTellPage(owner string) bool
	Introduce(ctx context.Context, to *comfyui.Client, tenant, client string) (comfyui.Alias, bool)
	Doubt(c *comfyui.Client)
	Free(ctx context.Context, tenant string, clients []string, models, memory bool)
}
