// Package tenants decides what each tenant may take of what everybody shares, and knows whether people
// log in.
package tenants

import (
	"cmp"
	"time"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/rules"
)

// Keys knows what the operator has given to tenants together with their API keys.
type Keys interface {
	Limits(tenant string) apikeys.Limits
}

// Tenants decides what each tenant may take of what everybody shares.
type Tenants struct {
	settings func() *config.Settings
	keys     Keys
	logins   *Logins
}

// New decides by the current settings, by what the operator has given to tenants together
// with their API keys, and by whether people log in.
func New(settings func() *config.Settings, keys Keys, logins *Logins) *Tenants {
	return &Tenants{settings, keys, logins}
}

// quarter returns how much of a shared limit one tenant gets, so that three others can have the
// same and a fourth is still served.
func quarter[T int | int64](whole T) T { return max(whole/4, 1) }

// Limits returns the limits of a tenant; zero means no bound except everybody's. This is the one
// place that decides which tenants the defaults bind. Tenants who log in share the hub with others
// and get a part of it. Those who do not log in are one tenant together: alone, they are everybody,
// and have the whole hub as they would have a ComfyUI; beside people who log in they are one tenant
// among others.
func (t *Tenants) Limits(tenant string) config.TenantLimits {
	s := t.settings()
	l := s.TenantLimits.But(s.TenantLimitsOf[tenant]).But(byKeys(t.keys.Limits(tenant)))
	l.History = cmp.Or(l.History, s.HistoryEntries)
	if !t.Shares(tenant) {
		return l
	}
	l.Waiting = cmp.Or(l.Waiting, quarter(s.MaxQueue))
	l.QueueSize = cmp.Or(l.QueueSize, quarter(s.MaxQueueSize))
	l.Sockets = cmp.Or(l.Sockets, quarter(s.MaxSockets))
	l.Userdata = cmp.Or(l.Userdata, 1<<30)
	l.UserdataFiles = cmp.Or(l.UserdataFiles, 10_000)
	l.Inputs = cmp.Or(l.Inputs, 50<<30)
	l.InputFiles = cmp.Or(l.InputFiles, 100_000)
	return l
}

// byKeys returns the limits that API keys give their tenant. They take precedence over those of the
// configuration.
func byKeys(l apikeys.Limits) config.TenantLimits {
	return config.TenantLimits{Running: l.Running, Waiting: l.Waiting, GPUTime: time.Duration(l.GPUSeconds) * time.Second, Rate: l.Rate}
}

// Weight returns a tenant's share in the time of the instances.
func (t *Tenants) Weight(tenant string) float64 {
	if weight := t.keys.Limits(tenant).Weight; weight > 0 {
		return weight
	}
	if weight, ok := t.settings().TenantWeights[tenant]; ok {
		return weight
	}
	return 1
}

// Shares reports whether a tenant has to leave room for others.
func (t *Tenants) Shares(tenant string) bool {
	return tenant != job.DefaultTenant || t.logins.Lately()
}

// Rules returns what a tenant may run: its own rules, or those for everybody else.
func (t *Tenants) Rules(tenant string) rules.Rules {
	s := t.settings()
	if own, ok := s.RulesOf[tenant]; ok {
		return own
	}
	return s.Rules
}
