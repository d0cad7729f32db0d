package discord

import (
	"context"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

var _ platform.Worker = (*Discord)(nil)

// WorkLasts implements platform.Worker.
func (d *sender) WorkLasts() time.Duration { return 10 * time.Second }

// Work implements platform.Worker. Discord knows only typing.
func (d *sender) Work(ctx context.Context, to platform.Chat, _ platform.Media) error {
	if !isID(to.ID) {
		return platform.ErrRefused
	}
	return d.rest.do(ctx, call{method: http.MethodPost, path: "/channels/" + to.ID + "/typing"}, nil)
}
