package dispatch

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// beatEvery is how often a hub tells the others that it is alive.
	beatEvery = time.Second
	// beatLasts is how long a hub counts as alive after that.
	beatLasts = 3 * beatEvery
	// quitTimeout bounds telling the other hubs that this one is stopping.
	quitTimeout = 2 * time.Second
)

// keepBeating tells the other hubs that this one is alive, until ctx ends. Nothing slow may hold it
// up.
func (d *Dispatcher) keepBeating(ctx context.Context) {
	for ctx.Err() == nil {
		silent, late, err := d.queue.Beat(ctx, d.Hub, beatLasts, d.buried.take()...)
		if err == nil && late {
			d.work.Go(d.log, "looking for lost runs", func() { d.renew(ctx) })
		}
		if len(silent) > 0 {
			select {
			case d.silent <- silent:
			default: // still busy with the last ones
			}
		}
		retry.Sleep(ctx, beatEvery)
	}
}

// inherit takes over the runs of hubs that are silent and gone, until ctx ends.
func (d *Dispatcher) inherit(ctx context.Context) {
	for {
		select {
		case hubs := <-d.silent:
			for _, hub := range hubs {
				if d.Gone(ctx, hub) {
					d.inheritFrom(ctx, hub)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// inheritFrom takes over the runs of one hub without waiting for their leases to end. Runs on
// instances that this hub cannot reach are left to others: their own hub may be the only one that
// can, and it may just be restarting.
func (d *Dispatcher) inheritFrom(ctx context.Context, hub string) {
	runs, err := d.queue.Runs(ctx)
	if err != nil {
		return
	}
	left := 0
	for _, held := range runs {
		if held.Hub != hub {
			continue
		}
		if conn := d.connection(held.Instance); conn == nil || !conn.isReached() {
			left++
			continue
		}
		orphan, err := d.queue.Inherit(ctx, held, d.Hub)
		if err == nil {
			d.adopt(ctx, orphan, Silent)
		}
	}
	if left == 0 {
		d.buried.add(hub)
	}
}

// quit hands this hub's runs over to the others; it no longer follows them.
func (d *Dispatcher) quit() {
	ctx, cancel := context.WithTimeout(context.Background(), quitTimeout)
	defer cancel()
	if err := d.queue.Quit(ctx, d.Hub); err != nil {
		d.log.Debug("cannot tell the other hubs that this one stops", "error", err)
	}
}
