package stream

import (
	"sync/atomic"
	"time"
)

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
	s.limits.now.Store(&l)
}

// limits are those that apply now.
type limits struct{ now atomic.Pointer[Limits] }

func (l *limits) window() time.Duration { return l.now.Load().ReplayWindow }
