package caddymodule

import (
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/comfyhub/comfyhub/internal/hub"
)

// TenantLimits bound how much of the shared resources one tenant may use. A limit
// that is given applies to each tenant. The defaults apply to each tenant that logs
// in and, once somebody has logged in within the last week, to all callers without
// a login together: a hub without logins only has its own limits.
type TenantLimits struct {
	// How many jobs of a tenant may wait; further prompts get 429. Default: a
	// quarter of `max_queue`.
	Waiting int `json:"waiting,omitempty"`

	// How many bytes the bodies of these jobs may take, compressed. Default: a
	// quarter of `max_queue_size`.
	QueueSize int64 `json:"queue_size,omitempty"`

	// How many jobs of a tenant may run at once; others wait, and hold up nobody.
	// Default: no limit.
	Running int `json:"running,omitempty"`

	// How many seconds of instances a tenant may use within 24 hours. Then its prompts
	// get 429, and what it has waiting waits; what runs goes on. Default: no limit.
	GPUSeconds int `json:"gpu_seconds,omitempty"`

	// How many prompts a tenant may post a minute, and at once; further ones get 429.
	// Default: no limit.
	Rate int `json:"rate,omitempty"`

	// How many bytes a tenant's uploads and the files made by its jobs may take together.
	// Then its prompts get 429. Default: no limit.
	Storage int64 `json:"storage,omitempty"`

	// Whom the tenant's jobs go before: `interactive` jobs before all others, `bulk` jobs
	// behind. A prompt may ask for a lower band. Default: `normal`.
	Band string `json:"band,omitempty"`

	// How many sockets of a tenant may be open at once. Default: a quarter of
	// `max_sockets`.
	Sockets int `json:"sockets,omitempty"`

	// How many ended jobs of a tenant are kept; the oldest are removed. Default:
	// what `history` keeps. Beyond that, the tenant with the most loses its oldest.
	History int `json:"history,omitempty"`

	// How many bytes the files made by a tenant's jobs may take; its oldest jobs
	// are removed, with their files. Default: no limit except `history { size }`,
	// at which the tenant with the most loses its oldest.
	HistorySize int64 `json:"history_size,omitempty"`

	// How many bytes a tenant's settings and saved workflows may take.
	// Default: 1073741824 (1 GiB).
	Userdata int64 `json:"userdata,omitempty"`

	// How many such files and folders a tenant may have. Default: 10000.
	UserdataFiles int `json:"userdata_files,omitempty"`

	// How many bytes a tenant's uploads may take; equal files count once.
	// Default: 53687091200 (50 GiB).
	Inputs int64 `json:"inputs,omitempty"`

	// How many uploaded files a tenant may have. Default: 100000.
	InputFiles int `json:"input_files,omitempty"`
}

// UnmarshalCaddyfile parses the block "tenant_limits" of the app.
func (l *TenantLimits) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return setBlock(d, l.set, "tenant_limits takes a block")
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
	return limits.UnmarshalCaddyfile(d)
}

func (l *TenantLimits) set(word, value string) (err error) {
	switch word {
	case "waiting":
		l.Waiting, err = parseCount(value)
	case "queue_size":
		l.QueueSize, err = parseSize(value)
	case "running":
		l.Running, err = parseCount(value)
	case "gpu_seconds":
		l.GPUSeconds, err = parsePer(value, "day")
	case "rate":
		l.Rate, err = parsePer(value, "min", "minute")
	case "storage":
		l.Storage, err = parseSize(value)
	case "band":
		l.Band = value
	case "sockets":
		l.Sockets, err = parseCount(value)
	case "history":
		l.History, err = parseCount(value)
	case "history_size":
		l.HistorySize, err = parseSize(value)
	case "userdata":
		l.Userdata, err = parseSize(value)
	case "userdata_files":
		l.UserdataFiles, err = parseCount(value)
	case "inputs":
		l.Inputs, err = parseSize(value)
	case "input_files":
		l.InputFiles, err = parseCount(value)
	default:
		return errUnknownWord
	}
	return err
}

// check validates values that may come from JSON.
func (l *TenantLimits) check() error {
	for _, f := range []struct {
		word  string
		value int64
	}{
		{"waiting", int64(l.Waiting)},
		{"queue_size", l.QueueSize},
		{"running", int64(l.Running)},
		{"gpu_seconds", int64(l.GPUSeconds)},
		{"rate", int64(l.Rate)},
		{"storage", l.Storage},
		{"sockets", int64(l.Sockets)},
		{"history", int64(l.History)},
		{"history_size", l.HistorySize},
		{"userdata", l.Userdata},
		{"userdata_files", int64(l.UserdataFiles)},
		{"inputs", l.Inputs},
		{"input_files", int64(l.InputFiles)},
	} {
		if f.value < 0 {
			return fmt.Errorf("%s: must not be negative", f.word)
		}
	}
	if _, ok := hub.ParseBand(l.Band); !ok && l.Band != "" {
		return fmt.Errorf("band: %q is not interactive, normal, or bulk", l.Band)
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
		if err := l.check(); err != nil {
			return fmt.Errorf("%s: %w", tenant, err)
		}
	}
	return nil
}

func (o OwnLimits) limits() map[string]hub.TenantLimits {
	limits := map[string]hub.TenantLimits{}
	for tenant, l := range o {
		limits[tenant] = l.limits()
	}
	return limits
}

// limits returns the hub's limits; absent ones are the defaults.
func (l *TenantLimits) limits() hub.TenantLimits {
	if l == nil {
		return hub.TenantLimits{}
	}
	return hub.TenantLimits{
		Waiting: l.Waiting, QueueSize: l.QueueSize, Sockets: l.Sockets, History: l.History, HistorySize: l.HistorySize,
		Userdata: l.Userdata, UserdataFiles: l.UserdataFiles, Inputs: l.Inputs, InputFiles: l.InputFiles,
		Running: l.Running, GPUTime: time.Duration(l.GPUSeconds) * time.Second, Band: hub.Band(l.Band),
		Rate: l.Rate, Storage: l.Storage,
	}
}
