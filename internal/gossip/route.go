package gossip

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// routeEvery is the pause between two looks for a way to the others.
const routeEvery = 2 * time.Second

// AwaitRoute waits until this machine has an address that the others can reach, if it has to find
// one: a service may start before the network is up, and what is announced then stays. The error is
// that of ctx.
func (c Config) AwaitRoute(ctx context.Context) error {
	host, _, err := splitAddress(c.Bind)
	away := slices.ContainsFunc(c.Join, func(member string) bool {
		host, _, err := splitAddress(member)
		return err == nil && !IsLoopback(host)
	})
	if err != nil || c.Advertise != "" || host != "" && !isAny(host) || !away {
		return nil
	}
	return awaitRoute(ctx, func() string { return outward(c.Join) }, c.Logger)
}

func awaitRoute(ctx context.Context, find func() string, log *slog.Logger) error {
	for said := false; find() == ""; said = true {
		if !said {
			log.Warn("this machine has no way to the hubs yet; waiting for its network")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(routeEvery):
		}
	}
	return nil
}
