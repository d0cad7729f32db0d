package caddymodule

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// register adds the hub's collectors to the registry of one configuration. Caddy
// makes a new registry at each load; the collectors are made once, with the hub, so
// that counters continue. If a second app uses the same registry, they are already
// there, which is fine.
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
