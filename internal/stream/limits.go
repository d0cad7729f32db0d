package stream

import "time"

// Limits are the Options that a reload of the configuration may change. Zero values mean the
// defaults.
type Limits struct {
	ReplayWindow  time.Duration
	MaxSockets    int
	TenantSockets func(tenant string) int
}

// SetLimits replaces the limits.
func (s *Streams) SetLimits(l Limits) {
	l.ReplayWindow = positive(l.ReplayWindow, time.Minute)
	l.MaxSockets = positive(l.MaxSockets, 10_000)
	if l.TenantSockets == nil {
		l.TenantSockets = func(string) int { return 0 }
	}
	s.limits.Store(&l)
}

func (s *Streams) window() time.Duration { return s.limits.Load().ReplayWindow }
