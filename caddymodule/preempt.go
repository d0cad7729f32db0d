package caddymodule

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// defaultPreempt is how long an interactive job waits before a bulk run makes way for it,
// if a Caddyfile does not say.
const defaultPreempt = caddy.Duration(5 * time.Second)

// unmarshalPreempt parses a line "preempt bulk [<duration>]" of the app.
func (a *App) unmarshalPreempt(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 1 || len(args) > 2 {
		return d.ArgErr()
	}
	if err := oneOf(args[0], "bulk"); err != nil {
		return d.Errf("preempt: %v", err)
	}
	wait := defaultPreempt
	if len(args) == 2 {
		var err error
		if wait, err = parseDuration(args[1]); err != nil {
			return d.Errf("preempt: %v", err)
		}
	}
	a.PreemptBulk = wait
	return nil
}
