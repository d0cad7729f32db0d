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
func (w *TenantWeights) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	*w = TenantWeights{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		tenant := d.Val()
		if _, twice := (*w)[tenant]; twice {
			return d.Errf("%s is given twice", tenant)
		}
		var text string
		if !d.AllArgs(&text) {
			return d.Errf("%s takes one argument", tenant)
		}
		weight, err := parseWeight(text)
		if err != nil {
			return d.Errf("%s: %w", tenant, err)
		}
		(*w)[tenant] = weight
	}
	if len(*w) == 0 {
		return d.Err("tenant_weights takes a block")
	}
	return nil
}

func parseWeight(value string) (float64, error) {
	weight, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", value)
	}
	return weight, checkWeight(weight)
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
