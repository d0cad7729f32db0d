package hub

import (
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/classes"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/ends"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/health"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/lastknown"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/machines"
	"github.com/comfyhub/comfyhub/internal/members"
	"github.com/comfyhub/comfyhub/internal/metrics"
	"github.com/comfyhub/comfyhub/internal/operator"
	"github.com/comfyhub/comfyhub/internal/overflow/endpoints"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/retention"
	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/tenants"
	"github.com/comfyhub/comfyhub/internal/tunnel"
	"github.com/comfyhub/comfyhub/internal/upstream"
	"github.com/comfyhub/comfyhub/internal/userdata"
	"github.com/comfyhub/comfyhub/internal/view"
	"github.com/comfyhub/comfyhub/internal/webui"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
	"github.com/comfyhub/comfyhub/internal/worker"
)

// Parts are what a hub consists of. The first Start makes them, and nothing replaces them.
type Parts struct {
	// What the hubs of a fleet share.
	DB       *redis.DB
	Storage  *files.Storage
	Bond     *files.Bond
	Ring     *keyring.Ring
	Keys     *apikeys.Keys
	Machines *machines.Machines
	Queue    *queue.Queue

	// Files, and who may have how many.
	Tenants  *tenants.Tenants
	Store    *files.Store
	Transfer *files.Transfer
	View     *files.View
	Uploads  *files.Uploads
	Held     *files.Held
	Folders  *view.Folders
	Users    *userdata.Store
	Links    *links.Links
	Disks    []*metrics.Disk

	// The instances, and what they can run.
	Fleet     *fleet.Registry
	Clients   *comfyui.Clients
	Instances *upstream.Instances
	Inventory *classes.Inventory
	Classes   *classes.Classes
	Members   *members.Members
	Authority *gossip.Authority
	Tunnels   *tunnel.Tunnels
	Workers   *worker.Workers
	Endpoints *endpoints.Endpoints
	Scaler    *scale.Scaler
	Pages     *origin.PageSource
	WebUI     *webui.Files
	LastKnown *lastknown.Answers

	// Jobs, from their posts to their ends.
	Submitter *submit.Submitter
	Canceller *submit.Canceller
	Callbacks *submit.Callbacks
	Dispatch  *dispatch.Dispatcher
	Streams   *stream.Streams
	Ends      *ends.Ends

	// What people see, and what operators do.
	Jobs     *view.Jobs
	Insight  *view.Insight
	Board    *view.Board
	Figures  *view.Figures
	Watches  *view.Watches
	Logs     *view.Logs
	Operator *operator.Operator
	Stops    *operator.Stops
	Metrics  *metrics.Metrics
	Recorder *metrics.Recorder
	Checkup  *health.Checkup
	Janitor  *retention.Janitor
}
