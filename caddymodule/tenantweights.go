package caddymodule

import (
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Values of `order`.
const (
	orderFair = "fair"
	orderFIFO = "fifo"
)

// TenantWeights are the shares of tenants in the time of the instances: one with the
// weight 2 gets twice as much as one with the weight 1 while both have jobs waiting.
type TenantWeights map[string]float64

// UnmarshalCaddyfile parses the block "tenant_weights" of the app.
func (w TenantWeights) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	return setBlock(d, func(tenant, value string) error {
		weight, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", value)
		}
		w[tenant] = weight
		return checkWeight(weight)
	}, "tenant_weights takes a block")
}

func (w TenantWeights) check() error {
	for tenant, weight := range w {
		if err := checkWeight(weight); err != nil {
			return fmt.Errorf("%s: %w", tenant, err)
		}
	}
	return nil
}

func checkWeight(weight float64) error {
	if !(weight >= 0.001 && weight <= 1000) { // NaN is neither
		return fmt.Errorf("%g is not from 0.001 to 1000", weight)
	}
	return nil
}
