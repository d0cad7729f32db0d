package ops

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/overflow"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/tunnel"
	"github.com/comfyhub/comfyhub/internal/view"
)

// Core is what the room needs of a hub.
type Core struct {
	Settings *config.Settings
	// Release is the version of the hub.
	Release string
	Board   *view.Board
	Figures *view.Figures
	Finder  view.Finder
	Insight *view.Insight
	Links   *links.Links
	// Classes tells what instances say about a node class, nil if none of them has it.
	Classes interface {
		Known(class string) *pyjson.Object
	}
	// Clients are those of the connected instances.
	Clients interface {
		ClientOf(instance string) *comfyui.Client
	}
	Submitter *submit.Submitter
	Canceller *submit.Canceller
	Callbacks *submit.Callbacks
	Operator  Operator
	// Members tells where agents join.
	Members interface {
		Joining() (address string, keyed bool)
	}
	Tunnels interface {
		Machine(ctx context.Context, token string) (string, error)
		Serve(machine, token string, session *tunnel.Session)
	}
	// Machines lets those join that have been started by need.
	Machines interface {
		Join(ctx context.Context, token, hash string) error
	}
	// Scaler and Endpoints have the machines and endpoints that work only when there is much to do.
	Scaler interface {
		Status(ctx context.Context) ([]scale.Status, error)
	}
	Endpoints interface {
		Status(ctx context.Context) ([]overflow.Status, error)
	}
}

// Operator does what operators command.
type Operator interface {
	Pause(ctx context.Context, s queue.Stop) error
	Resume(ctx context.Context, s queue.Stop) error
	Drain(ctx context.Context, instance string, deadline time.Duration) error
	ForgetInstance(ctx context.Context, name string) error
	Restart(ctx context.Context, instance string) error
	Jobs(ctx context.Context, p view.JobsPage) ([]view.JobView, error)
	JobsWithID(ctx context.Context, id string) ([]view.JobView, error)
}
