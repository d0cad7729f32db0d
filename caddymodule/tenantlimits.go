package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/comfyhub/comfyhub/internal/config"
)

// TenantLimits bound how much of the shared resources one tenant may use. A limit
// that is given applies to each tenant. The defaults apply to each tenant that logs
// in and, once somebody has logged in within the last week, to all callers without
// a login together: a hub without logins only has its own limits.
type TenantLimits struct {
	// Waiting jobs of one tenant; then 429. Default: a quarter of `max_queue`.
	Waiting int `json:"waiting,omitempty" word:"waiting <n>"`

	// Jobs of one tenant that run at once; its other jobs wait, and hold up nobody. Default: no
	// limit.
	Running int `json:"running,omitempty" word:"running <n>"`

	// GPU time that one tenant may use within 24 hours, in seconds; then 429, and waiting jobs keep
	// waiting. Default: no limit.
	GPUSeconds int `json:"gpu_seconds,omitempty" word:"gpu_seconds <n>[/day]"`

	// Prompts of one tenant a minute, and as many at once; then 429. Default: no limit.
	Rate int `json:"rate,omitempty" word:"rate <n>[/min]"`

	// Its uploads and the files of its jobs together; then 429 for prompts. Default: no limit.
	Storage int64 `json:"storage,omitempty" word:"storage <size>"`

	// The priority class: `interactive` tenants go before all others, `bulk` tenants after them; a
	// prompt may ask for a lower one, see docs/scheduling.md#priority-classes. Default: `normal`.
	Band string `json:"band,omitempty" word:"band interactive|normal|bulk"`

	// Size of the files of its ended jobs; its oldest are removed. The same for all tenants.
	// Default: no limit but `history { size }`, at which the tenant with the most loses its
	// oldest.
	HistorySize int64 `json:"history_size,omitempty" word:"history_size <size>"`

	// Uploads of one tenant; equal files count once. Default: 50GiB.
	Inputs int64 `json:"inputs,omitempty" word:"inputs <size>"`

	// Share of one tenant, which has to be named, in GPU time beside others, from 0.001 to 1000, see docs/scheduling.md#fair-shares. Default: 1.
	Weight float64 `json:"weight,omitempty" word:"weight <n>"`

	// Gives a prompt the result of an equal one of the same tenant that has ended within that time
	// (`on`: 24h), without running it, see docs/result-cache.md. Default: `off`.
	ResultCache *caddy.Duration `json:"result_cache,omitempty" word:"result_cache off|on|<duration>"`

	LastLimits
}

// UnmarshalCaddyfile parses the block "tenant_limits" of the app.
func (l *TenantLimits) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if filled, err := lines(d, l, "", nil); err != nil || filled {
		return err
	}
	return d.Err("tenant_limits takes a block")
}

// OwnLimits are limits of single tenants, by name. What is absent is as for all tenants.
type OwnLimits map[string]*TenantLimits

// unmarshalTenantLimits parses a block "tenant_limits": of those tenants that it names, or
// of all others.
func (a *App) unmarshalTenantLimits(d *caddyfile.Dispenser) error {
	tenants, limits := d.RemainingArgs(), new(TenantLimits)
	if len(tenants) == 0 && a.TenantLimits != nil {
		return d.Err("tenant_limits for all is given twice")
	}
	for _, tenant := range tenants {
		if a.TenantLimitsOf[tenant] != nil {
			return d.Errf("tenant_limits of %s are given twice", tenant)
		}
		if a.TenantLimitsOf == nil {
			a.TenantLimitsOf = OwnLimits{}
		}
		a.TenantLimitsOf[tenant] = limits
	}
	if len(tenants) == 0 {
		a.TenantLimits = limits
	}
	if err := limits.UnmarshalCaddyfile(d); err != nil {
		return err
	}
	if err := limits.checkWeight(len(tenants) > 0); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// checkWeight validates a weight, which only a tenant that is named can have.
func (l *TenantLimits) checkWeight(named bool) error {
	switch {
	case l.Weight == 0:
		return nil
	case !named:
		return errors.New("weight: name the tenant, as in tenant_limits ada { weight 2 }")
	}
	if err := checkWeight(l.Weight); err != nil {
		return fmt.Errorf("weight: %w", err)
	}
	return nil
}

// check validates values that may come from JSON.
func (o OwnLimits) check() error {
	for tenant, l := range o {
		if l == nil {
			continue
		}
		if l.History != 0 || l.HistorySize != 0 {
			return fmt.Errorf("%s: history and history_size are the same for all tenants", tenant)
		}
		if err := errors.Join(checkWords(l), l.checkWeight(true)); err != nil {
			return fmt.Errorf("%s: %w", tenant, err)
		}
	}
	return nil
}

func (o OwnLimits) limits() map[string]config.TenantLimits {
	limits := map[string]config.TenantLimits{}
	for tenant, l := range o {
		limits[tenant] = l.limits()
	}
	return limits
}

// weights are those of the tenants that have one, and those of the word of the last version.
func (o OwnLimits) weights(last TenantWeights) map[string]float64 {
	weights := map[string]float64{}
	maps.Copy(weights, last)
	for tenant, l := range o {
		if l != nil && l.Weight != 0 {
			weights[tenant] = l.Weight
		}
	}
	return weights
}

// limits returns the hub's limits; absent ones are the defaults.
func (l *TenantLimits) limits() config.TenantLimits {
	if l == nil {
		return config.TenantLimits{}
	}
	limits := config.TenantLimits{GPUTime: time.Duration(l.GPUSeconds) * time.Second}
	if l.ResultCache != nil {
		limits.ResultCache = cmp.Or(time.Duration(*l.ResultCache), -1) // off, whatever holds for the others
	}
	settle(&limits, l)
	return limits
}
