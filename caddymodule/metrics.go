package caddymodule

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// register puts the hub's collectors into the registry of one configuration.
// Caddy makes a new registry at each load; the collectors are made once, with
// the hub, so that counters go on where they were. A second app of the same
// registry finds them there already, which is as good.
func register(registry prometheus.Registerer, collectors []prometheus.Collector) error {
	for _, c := range collectors {
		err := registry.Register(c)
		var already prometheus.AlreadyRegisteredError
		if err != nil && !errors.As(err, &already) {
			return err
		}
	}
	return nil
}
