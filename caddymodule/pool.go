package caddymodule

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/api/mount"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// hubs holds every hub that some loaded configuration refers to, by identity. It is
// the package's only state, because configurations come and go. The key does not
// include the settings, so that a changed timeout finds the running hub instead of
// building a second one.
var hubs = caddy.NewUsagePool()

// sharedHub is a hub and the configurations that have started on it, oldest first.
// The settings of the last one are in force.
type sharedHub struct {
	hub    *hub.Hub
	api    mount.API
	logs   logSwitch
	logger *slog.Logger // writes to logs
	audits logSwitch
	audit  *slog.Logger // writes to audits

	mu      sync.Mutex
	started []*App
	close   func() error
}

// acquire returns the hub of an identity and adds a reference to it. Each call must
// be matched by exactly one release.
func acquire(id config.Identity) (*sharedHub, error) {
	value, _, err := hubs.LoadOrNew(id, func() (caddy.Destructor, error) {
		h := hub.New(id)
		s := &sharedHub{hub: h, api: mount.New(h)}
		s.logger, s.audit = s.logs.logger(), s.audits.logger()
		// Both the exit of the process and the last release close the hub.
		s.close = sync.OnceValue(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			return s.hub.Close(ctx)
		})
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*sharedHub), nil
}

// release returns one reference; the last one closes the hub.
func release(id config.Identity) error {
	_, err := hubs.Delete(id)
	return err
}

// rivalHolds returns the port or the folder that a hub of this identity would need
// and that another hub of this process holds.
func rivalHolds(id config.Identity) (what string, held bool) {
	hubs.Range(func(key, value any) bool {
		other, s := key.(config.Identity), value.(*sharedHub)
		switch {
		case other == id || !s.isStarted():
		case other.GossipBind == id.GossipBind && !strings.HasSuffix(id.GossipBind, ":0"):
			what, held = id.GossipBind, true
		case other.Data == id.Data:
			what, held = id.Data, true
		}
		return !held
	})
	return what, held
}

func (s *sharedHub) isStarted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.started) > 0
}

// apply starts the hub with the settings of a, or replaces those in force.
func (s *sharedHub) apply(a *App) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.use(a); err != nil {
		// Caddy stops only what has started.
		return errors.Join(err, s.useNewest())
	}
	s.started = append(s.started, a)
	return nil
}

// use puts settings in force. The caller holds the lock.
func (s *sharedHub) use(a *App) error {
	s.logs.use(a.logs)
	s.audits.use(a.audits)
	settings := a.settings
	settings.Logger, settings.Audit = s.logger, s.audit
	return s.hub.Start(context.Background(), settings)
}

// withdraw forgets a. If its settings were in force while an older configuration is
// still there, that one's settings are restored: the newer configuration has been
// given up.
func (s *sharedHub) withdraw(a *App) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.started, a)
	if i < 0 {
		return nil
	}
	newest := i == len(s.started)-1
	s.started = slices.Delete(s.started, i, i+1)
	if !newest {
		return nil
	}
	return s.useNewest()
}

// useNewest puts the settings of the newest configuration in force, if there is
// one. The caller holds the lock.
func (s *sharedHub) useNewest() error {
	if len(s.started) == 0 {
		return nil
	}
	return s.use(s.started[len(s.started)-1])
}

// Destruct closes the hub. Caddy's pool calls it when the last reference is gone.
func (s *sharedHub) Destruct() error { return s.close() }
